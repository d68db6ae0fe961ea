"""Metrics, health, spans and the log of a node in production, searched for what was planted in ids,
arguments and settings.
"""

from __future__ import annotations

import logging
import re
import urllib.request
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from django.test import override_settings
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from sharding_app import EntityFailed, InvalidCall, NotSerializable, Rejected
from sharding_app.runtime.telemetry import tracing
from sharding_app.testing import MemoryCluster
from tests.badinput.app.entities import Ledger
from tests.security.conftest import KEY, PRODUCTION, TOKEN
from tests.support.live import Live, Program
from tests.support.slack import SLACK

MARKER = "4929-marker-0815"
ID = f"customer-{MARKER}"
SITE = """
from django.test import Client
for page in ("startup", "ready", "alive", "metrics"):
    answer = Client().get("/sharding/" + page, headers={"Authorization": "Bearer TOKEN"})
    print(page, answer.status_code, answer.content.decode())
""".replace("TOKEN", TOKEN)


def secrets_of(live: Live) -> list[str]:
    passwords = [urlsplit(live.database_url).password, urlsplit(live.redis_url).password]
    assert all(passwords)
    return [MARKER, KEY, TOKEN, *(each for each in passwords if each)]


def leave_traces() -> None:
    """Let something of every kind happen to one entity: success, rejection, failure, refusal, and
    an event that cannot be stored.
    """
    ledger = Ledger.ref(ID).sync
    assert ledger.note(1, MARKER) == 1
    with pytest.raises(EntityFailed, match=r"^badinput.Ledger '.*': fail_about raised LookupError$"):
        ledger.fail_about(1, MARKER)
    with pytest.raises(EntityFailed):
        ledger.measure(1, MARKER)
    with pytest.raises(Rejected):
        ledger.refuse(1)
    with pytest.raises(NotSerializable):
        ledger.note(1, f"NUL{MARKER}")
    with pytest.raises(InvalidCall):
        ledger.book([MARKER])  # type: ignore[arg-type]
    assert ledger.total() == 1


def test_metrics_health_and_log_of_a_node_and_of_the_site(
    quiet_node: tuple[Live, Program], caplog: pytest.LogCaptureFixture
) -> None:
    live, node = quiet_node
    with caplog.at_level(logging.DEBUG, "sharding"):
        leave_traces()
    address = node.wait_line(r"(http://127\.0\.0\.1:\d+/)", 5)[1]
    pages = {}
    for page in ("startup", "ready", "alive", "metrics"):
        asked = urllib.request.Request(f"{address}{page}", headers={"Authorization": f"Bearer {TOKEN}"})  # noqa: S310
        with urllib.request.urlopen(asked, timeout=5 * SLACK) as answer:  # noqa: S310  (its own node)
            pages[page] = answer.read().decode()
    assert re.search(
        r'sharding_incidents_total\{.*type="badinput.Ledger",what="handler_failed"\} 2', pages["metrics"]
    )
    site = live.manage("shell", "-c", SITE, seconds=60.0, **PRODUCTION)
    assert "metrics 200 " in site.stdout, site.stdout + site.stderr
    assert "badinput.Ledger" in site.stdout
    assert "badinput.Ledger.fail_about raised LookupError" in node.text, "the log tells what, and where"
    assert 'raise LookupError(f"nobody has the card {text}")' in node.text
    said = "\n".join([*pages.values(), site.stdout, site.stderr, node.text, caplog.text])
    assert [each for each in secrets_of(live) if each in said] == [], said


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """Collect the spans of this process."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    yield exporter
    provider.shutdown()
    monkeypatch.undo()
    tracing.look()


@pytest.mark.asyncio
async def test_spans(exporter: InMemorySpanExporter) -> None:
    """They name the entity, and hold nothing of what it was told, answered or raised."""
    async with MemoryCluster([Ledger]) as cluster:
        with override_settings(SHARDING={"QUOTE_ERRORS": False}), cluster.in_use():
            ledger = Ledger.ref("named")
            await ledger.note(1, MARKER)
            for call in (ledger.fail_about(1, MARKER), ledger.measure(1, MARKER)):
                with pytest.raises(EntityFailed):
                    await call
            with pytest.raises(Rejected):
                await ledger.refuse(1, MARKER)
            with pytest.raises(NotSerializable):
                await ledger.note(1, f"NUL{MARKER}")
    spans = exporter.get_finished_spans()
    said = "\n".join(span.to_json() for span in spans)
    assert {"ask badinput.Ledger.note", "deliver badinput.Ledger.note", "persist badinput.Ledger"} <= {
        span.name for span in spans
    }
    assert "fail_about raised LookupError" in said
    assert '"exception.type": "EntityFailed"' in said
    assert '"sharding.entity": "named"' in said
    assert MARKER not in said
