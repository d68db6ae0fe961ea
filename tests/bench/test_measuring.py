"""What is counted, how it is compared, and how it is shown."""

from __future__ import annotations

import asyncio
import io
import json

import pytest
from django.conf import settings
from django.test import override_settings

from sharding_app.bench.driving import FixedRate, NothingMeasured, at_once, paced
from sharding_app.bench.entities import TYPES
from sharding_app.bench.isolation import PREFIX, only_bench_types
from sharding_app.bench.probe import compare, wires
from sharding_app.bench.report import Progress, json_line, table
from sharding_app.bench.result import Result
from sharding_app.bench.workloads import WORKLOADS
from sharding_app.bench.workloads.moving import Absences
from sharding_app.entities.registry import registry
from sharding_app.errors import Unavailable
from sharding_app.processes.addresses import NoAddress, database_url, redis_url
from sharding_app.protocol.ids import shard_of
from tests.support.slack import SLACK

FACTS = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"}


def test_the_types_exist_in_benchmarks_only() -> None:
    before = dict(registry.all())
    assert not any(name.startswith(PREFIX) for name in before), "importing them registers nothing"
    for _ in range(2):
        with only_bench_types():
            assert {each.name for each in TYPES} == set(registry.all())
            assert all(name.startswith(PREFIX) for name in registry.all()), "cleaning up goes by this name"
        assert registry.all() == before


def test_callers_wait_for_their_answers() -> None:
    under_way, most, done = 0, 0, []

    async def call(number: int) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        done.append(number)

    driven = asyncio.run(at_once(call, 7, count=100))
    assert sorted(done) == list(range(100)), "each number once"
    assert most == 7
    assert len(driven.seconds) == 100
    assert driven.elapsed > 0


def test_callers_stop_in_time() -> None:
    async def call(_: int) -> None:
        await asyncio.sleep(0.001)

    driven = asyncio.run(at_once(call, 3, seconds=0.05))
    assert driven.seconds
    assert driven.elapsed < 5 * SLACK


def test_a_measurement_without_an_operation_is_none() -> None:
    async def call(_: int) -> None:
        raise AssertionError("there is no time for it")

    for nothing in (at_once(call, 3, seconds=1e-9), paced(call, 1, 1, seconds=0.1)):
        with pytest.raises(NothingMeasured, match="give more --seconds"):
            asyncio.run(nothing)
    assert "p50_ms" not in Result(workload="failover").timed([]).as_json()


def test_paced_callers_count_from_when_a_call_was_due() -> None:
    async def call(number: int) -> None:
        await asyncio.sleep(0.05 if number == 0 else 0)

    driven = asyncio.run(paced(call, 1000, 1, seconds=0.03))
    assert len(driven.seconds) == 30
    assert min(driven.seconds) > 0.015, "the one caller was late for all of them, by the first answer"
    assert driven.elapsed >= 0.05


def test_a_fixed_rate_tells_successes_and_counts_failures() -> None:
    answered: list[int] = []

    async def call(number: int) -> None:
        if number % 4 == 0:
            raise Unavailable("no")

    async def main() -> FixedRate:
        enough = asyncio.Event()

        def note(number: int, begun: float, ended: float) -> None:
            assert ended >= begun
            answered.append(number)
            if len(answered) >= 30:
                enough.set()

        load = FixedRate(call, 2000, note)
        async with asyncio.timeout(10 * SLACK):
            await enough.wait()
        await load.stop()
        return load

    load = asyncio.run(main())
    assert load.succeeded == len(answered)
    assert load.failures == {"Unavailable": sum(1 for number in range(load.sent) if number % 4 == 0)}
    assert not any(number % 4 == 0 for number in answered)


def test_only_calls_made_after_the_loss_tell_that_a_shard_is_back() -> None:
    absences = Absences(60)
    number = next(each for each in range(1000) if shard_of(f"f{each}", 60) == 5)
    absences.begin({5, 6}, 10.0)
    absences.answered(number, 9.9, 10.1)
    assert absences.waiting == {5, 6}, "the former home may have answered that one"
    absences.answered(number, 10.1, 10.3)
    absences.answered(number, 10.2, 10.9)
    assert absences.waiting == {6}
    assert absences.seconds == [pytest.approx(0.3)], "the first success counts"


def test_a_result_says_what_applies() -> None:
    result = Result(workload="ask", in_flight=64, nodes=1, ops_per_s=12345.678).timed(
        [each / 1000 for each in range(1, 101)]
    )
    line = json.loads(json_line(result, FACTS))
    assert line == {
        "workload": "ask", "in_flight": 64, "nodes": 1, "ops_per_s": 12346, "p50_ms": 51.0, "p99_ms": 100.0,
        "max_ms": 100.0, **FACTS,
    }  # fmt: skip


def test_the_table_has_a_row_for_each_result() -> None:
    results = [
        Result(workload="durable", in_flight=64, ops_per_s=8000.0, ratio={"sockets_ops_per_s": 0.61}),
        Result(workload="memory", entities=100_000, bytes_per_entity=286.5),
    ]
    text = table(results, FACTS, "a machine")
    rows = text.splitlines()
    assert rows[0].split()[0] == "workload"
    assert "8,000" in rows[1]
    assert "sockets_ops_per_s 0.61" in rows[1]
    assert "bytes_per_entity 286.5" in rows[2]
    assert "fsync=on" in text
    assert rows[-1] == "Machine: a machine"


def test_progress_is_a_line_each_where_there_is_no_terminal() -> None:
    stream = io.StringIO()
    progress = Progress(stream)
    progress("ask, warming up")
    progress.done()
    assert stream.getvalue() == "ask, warming up\n"


def test_ratios_to_the_probes() -> None:
    ours = Result(workload="ask", ops_per_s=500.0, p50_ms=3.0, p99_ms=4.0)
    compare(ours, "sockets", {"ops_per_s": 1000.0, "p50_ms": 2.0, "p99_ms": 2.0})
    assert ours.ratio == {"sockets_ops_per_s": 0.5, "sockets_p50_ms": 1.5, "sockets_p99_ms": 2.0}
    compare(ours, "redis", {"ops_per_s": 250.0, "p50_ms": 6.0, "p99_ms": 8.0})
    assert ours.ratio["sockets_ops_per_s"] == 0.5
    assert (ours.ratio["redis_ops_per_s"], ours.ratio["redis_p99_ms"]) == (2.0, 0.5)
    assert ours.note == (
        "the probe over sockets: 1,000/s, p50 2 ms, p99 2 ms; the probe over redis: 250/s, p50 6 ms, p99 8 ms"
    )


@pytest.mark.parametrize(
    ("database", "url"),
    [
        (
            {"NAME": "shop", "USER": "u", "PASSWORD": "p@/ss", "HOST": "db", "PORT": "5433"},
            "postgresql://u:p%40%2Fss@db:5433/shop?client_encoding=UTF8",
        ),
        (
            {"NAME": "shop", "USER": "u", "HOST": "/run/postgresql", "OPTIONS": {"sslmode": "disable"}},
            "postgresql://u@/shop?sslmode=disable&client_encoding=UTF8&host=%2Frun%2Fpostgresql",
        ),
    ],
)
def test_the_probe_gets_the_same_database(
    monkeypatch: pytest.MonkeyPatch, database: dict[str, object], url: str
) -> None:
    monkeypatch.setitem(settings.DATABASES, "bench", database)
    with override_settings(SHARDING={"DATABASE": "bench"}):
        assert database_url() == url


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("redis://:s@h:1/2", "redis://:s@h:1/2"),
        (("h", 6380), "redis://h:6380"),
        ({"address": "rediss://h"}, "rediss://h"),
        ({"host": "h"}, "redis://h:6379"),
    ],
)
def test_the_probe_gets_the_same_redis(host: object, url: str) -> None:
    layers = {"default": {"BACKEND": "any", "CONFIG": {"hosts": [host]}}}
    with override_settings(CHANNEL_LAYERS=layers, SHARDING={}):
        assert redis_url() == url


def test_a_project_without_redis_is_compared_with_sockets_alone() -> None:
    with override_settings(CHANNEL_LAYERS={}, SHARDING={}):
        assert set(wires()) == {"sockets"}
    with override_settings(SHARDING={"LINKS": "direct"}):
        assert set(wires()) == {"sockets"}
    layers = {"default": {"BACKEND": "any", "CONFIG": {"hosts": ["redis://h:1"]}}}
    with override_settings(CHANNEL_LAYERS=layers, SHARDING={}):
        found = wires()
    assert set(found) == {"sockets", "redis"}
    assert found["redis"]["REDIS_URL"] == "redis://h:1"
    assert set(found["sockets"]) == {"DATABASE_URL"}


def test_a_layer_without_an_address_has_no_probe() -> None:
    layers = {"default": {"BACKEND": "any", "CONFIG": {"hosts": [{"sentinels": [["h", 1]], "address": 5}]}}}
    with override_settings(CHANNEL_LAYERS=layers, SHARDING={}), pytest.raises(NoAddress):
        redis_url()


def test_every_workload_of_the_docs_is_there() -> None:
    named = "projection ask durable django hot wide recover memory failover rebalance large scale live idle remembered flood soak starved long-history messages timers"
    assert set(WORKLOADS) == set(named.split())
