"""Spans of ask, deliver, persist, recover and hand-off: in one trace across processes, and none
without tracing.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import NoOpTracerProvider, SpanKind, StatusCode

from sharding_app import EntityFailed, EventSourced, applies, command, event, query
from sharding_app.runtime.asking.regions import RegionClient
from sharding_app.runtime.execution.execution import Execution
from sharding_app.runtime.hosting.type_host import TypeHost
from sharding_app.runtime.journal.loader import Loader
from sharding_app.runtime.telemetry import tracing
from sharding_app.testing.cluster import MemoryCluster
from tests.support.slack import SLACK


@event
class Heard:
    word: str


class Echo(EventSourced, name="tracing.Echo"):
    """Passes words on."""

    words: list[str]

    def __init__(self) -> None:
        self.words = []

    @command
    def hear(self, word: str) -> int:
        self.persist(Heard(word))
        return len(self.words)

    @command
    async def pass_on(self, word: str, to: str) -> int:
        await self.persist(Heard(word))
        return await Echo.ref(to).hear(f"{word} {baggage.get_baggage('mood') or ''}".rstrip())

    @command
    def whisper(self, word: str, to: str) -> None:
        Echo.ref(to).hear.tell(word)

    @command
    def rest(self) -> None:
        self.persist(Heard("nothing"))

    @command
    def write(self, to: str, command: str) -> None:
        self.send(getattr(Echo.ref(to), command))

    @query
    def last(self) -> str:
        return self.words[-1]

    @command
    def choke(self) -> None:
        raise ZeroDivisionError("too loud")

    @applies(Heard)
    def on_heard(self, happened: Heard) -> None:
        self.words.append(happened.word)


Spans = Callable[[], dict[str, list[ReadableSpan]]]


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    """Collect the spans of this process, by name."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)

    def collected() -> dict[str, list[ReadableSpan]]:
        found: dict[str, list[ReadableSpan]] = {}
        for span in exporter.get_finished_spans():
            found.setdefault(span.name, []).append(span)
        return found

    yield collected
    monkeypatch.undo()
    assert tracing.look() is None


def parent(span: ReadableSpan) -> int:
    assert span.parent is not None, f"{span.name} stands alone"
    return int(span.parent.span_id)


def own(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)


async def run_all(cluster: MemoryCluster) -> None:
    with cluster.in_use():
        assert await Echo.ref("a").pass_on("hello", "b") == 1


@pytest.mark.asyncio
async def test_a_delivery_of_a_durable_message_has_a_span_with_its_error(spans: Spans) -> None:
    async with MemoryCluster([Echo], nodes=2) as cluster:
        with cluster.in_use():
            await Echo.ref("a").write("b", "rest")
            await Echo.ref("a").write("c", "choke")
            async with asyncio.timeout(20 * SLACK):
                while not {"ask tracing.Echo.rest", "ask tracing.Echo.choke"} <= spans().keys():  # noqa: ASYNC110 - a span has no event
                    await asyncio.sleep(0.01)
    found = spans()
    assert found["ask tracing.Echo.rest"][0].status.status_code is StatusCode.UNSET
    assert found["ask tracing.Echo.choke"][0].status.status_code is StatusCode.ERROR


@pytest.mark.asyncio
async def test_one_call_is_one_trace_through_all_processes(spans: Spans) -> None:
    async with MemoryCluster([Echo], nodes=2) as cluster:
        await run_all(cluster)
    found = spans()
    (outer,), (inner,) = found["ask tracing.Echo.pass_on"], found["ask tracing.Echo.hear"]
    (first,), (second,) = found["deliver tracing.Echo.pass_on"], found["deliver tracing.Echo.hear"]
    assert outer.parent is None
    assert [parent(first), parent(inner), parent(second)] == [own(outer), own(first), own(inner)]
    assert {each.context.trace_id for each in (outer, inner, first, second) if each.context} == {
        outer.context.trace_id if outer.context else 0
    }
    step, last, final = sorted(found["persist tracing.Echo"], key=lambda span: span.start_time or 0)
    assert [parent(step), parent(last), parent(final)] == [own(first), own(second), own(first)]
    assert [outer.kind, first.kind] == [SpanKind.CLIENT, SpanKind.CONSUMER]
    assert dict(first.attributes or {}).items() >= {
        "sharding.type": "tracing.Echo", "sharding.entity": "a", "sharding.command": "pass_on",
    }.items()  # fmt: skip
    for recovered in found["recover tracing.Echo"]:
        assert parent(recovered) in (own(outer), own(inner)), "the one command that waited for it"


@pytest.mark.asyncio
async def test_the_callers_context_goes_along(spans: Spans) -> None:
    async with MemoryCluster([Echo]) as cluster:
        tracer = trace.get_tracer_provider().get_tracer("test")
        with tracer.start_as_current_span("request") as request:
            token = context.attach(baggage.set_baggage("mood", "merry"))
            await run_all(cluster)
            context.detach(token)
        with cluster.in_use():
            assert await Echo.ref("b").last() == "hello merry"
    asked = spans()["ask tracing.Echo.pass_on"][0]
    assert parent(asked) == request.get_span_context().span_id


@pytest.mark.asyncio
async def test_who_tells_waits_for_nothing_and_is_the_cause_all_the_same(spans: Spans) -> None:
    async with MemoryCluster([Echo]) as cluster:
        with cluster.in_use():
            await Echo.ref("a").whisper("psst", "b")
            assert await Echo.ref("b").hear("what?") == 2
    found = spans()
    (told,) = found["tell tracing.Echo.hear"]
    assert told.kind == SpanKind.PRODUCER
    assert parent(told) == own(found["deliver tracing.Echo.whisper"][0])
    assert parent(found["deliver tracing.Echo.hear"][0]) == own(told)


@pytest.mark.asyncio
async def test_what_fails_is_marked(spans: Spans) -> None:
    async with MemoryCluster([Echo]) as cluster:
        with cluster.in_use(), pytest.raises(EntityFailed):
            await Echo.ref("a").choke()
    found = spans()
    for name in ("ask tracing.Echo.choke", "deliver tracing.Echo.choke"):
        (span,) = found[name]
        assert span.status.status_code == StatusCode.ERROR
        assert "ZeroDivisionError" in str(span.status.description)


@pytest.mark.asyncio
async def test_a_hand_off_is_a_span(spans: Spans) -> None:
    async with MemoryCluster([Echo], nodes=2) as cluster:
        with cluster.in_use():
            for number in range(8):
                await Echo.ref(str(number)).hear("x")
        host = next(
            node.hosts["tracing.Echo"] for node in cluster.nodes.values() if node.hosts["tracing.Echo"].shards
        )
        number, shard = next(iter(host.shards.items()))
        host.shard_life.stop(number, shard.epoch)
        (span,) = spans()["hand-off tracing.Echo"]
    assert dict(span.attributes or {})["sharding.shard"] == number


@pytest.mark.asyncio
async def test_without_tracing_the_plain_parts_run() -> None:
    async with MemoryCluster([Echo]) as cluster:
        with cluster.in_use():
            assert await Echo.ref("a").hear("x") == 1
        host = next(iter(cluster.nodes.values())).hosts["tracing.Echo"]
        kinds = {type(host), type(host.execution), type(host.loader), type(cluster.client.region_client)}
    assert kinds == {TypeHost, Execution, Loader, RegionClient}
    assert tracing.carry() == ""


def test_a_provider_that_does_nothing_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "get_tracer_provider", NoOpTracerProvider)
    assert tracing.look() is None


def test_too_much_baggage_stays_behind(spans: Spans) -> None:
    tracer = tracing.look()
    assert tracer is not None
    span = tracer.start("x", "internal", {})
    token = context.attach(baggage.set_baggage("luggage", "y" * 5000))
    try:
        carried = tracer.carry()
        with tracer.inside(span):
            assert tracer.carry().startswith("traceparent:00-")
            assert len(tracer.carry()) < 100
    finally:
        context.detach(token)
        span.end()
    assert len(carried) < 100


def test_the_app_runs_without_the_package() -> None:
    code = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from sharding_app.runtime.telemetry import tracing\n"
        "from sharding_app.runtime.asking.regions import RegionClient\n"
        "assert tracing.look() is None\n"
        "assert tracing.part(RegionClient) is RegionClient and tracing.carry() == ''"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60 * SLACK)


class Angry(SpanProcessor):
    """Of the project's, and broken."""

    def on_start(self, span: object, parent_context: object = None) -> None:
        raise SystemExit(3)

    def on_end(self, span: object) -> None:
        raise ValueError("cannot be exported")


@pytest.mark.asyncio
async def test_a_span_processor_that_raises_costs_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = TracerProvider()
    provider.add_span_processor(Angry())
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    async with MemoryCluster([Echo]) as cluster:
        with cluster.in_use():
            assert await Echo.ref("1").hear("a") == 1
            assert await Echo.ref("1").pass_on("b", "2") == 1
            cluster.forget(Echo)
            assert await Echo.ref("1").last() == "b"
            with pytest.raises(EntityFailed):
                await Echo.ref("1").choke()
    tracing.active = None
