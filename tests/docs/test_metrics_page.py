"""docs/metrics.md lists every metric that there is, with its kind and its labels, and no other."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import msgspec

from sharding_app.adapters.django.projections import ProjectionStatus
from sharding_app.http.metrics import (
    cluster_families,
    database_families,
    journal_families,
    live_families,
    own_families,
    projection_families,
)
from sharding_app.operations.database_health import Health, TableHealth
from sharding_app.operations.projections import ProjectionLook
from sharding_app.operations.snapshot import JournalCounts, MessageCounts, ShardGroup, TypeRow
from sharding_app.protocol.histogram import ROWS, SECONDS
from sharding_app.protocol.records import CoordinatorRow, TypeConfig
from sharding_app.runtime.telemetry.exposition import Family
from sharding_app.runtime.telemetry.metrics import COUNTERS, GAUGES, HISTOGRAMS, families
from tests.support.answering_nodes import answer
from tests.support.live import ROOT

PAGE = ROOT / "docs" / "metrics.md"
LINE = re.compile(r"^\| `(?P<name>sharding_\w+)` \| (?P<kind>\w+) \| (?P<labels>[^|]*) \|", re.MULTILINE)
RESIZED = TypeConfig("shop.Cart", "event_sourced", 6, "hash:crc32-1", "crc32-1", "", "postgres", wanted=12)
Described = dict[str, tuple[str, frozenset[str]]]


def of(found: list[Family], *common: str) -> Described:
    """Name, kind and labels; `common` labels are on all of them."""
    return {
        each.name: (each.kind, frozenset(name for one in each.samples for name in one.labels) - set(common))
        for each in found
    }


def of_a_node() -> Described:
    full = msgspec.structs.replace(
        answer("n-a", 1.0),
        gauges=dict.fromkeys(GAUGES, 1.0),
        counters=dict.fromkeys([*COUNTERS, "cpu_milliseconds"], 1),
        histograms={
            name: ([0] * (len(bounds) + 1), 0.0)
            for name, (_, bounds) in HISTOGRAMS.items()
            if bounds in (ROWS, SECONDS)
        },
    )
    return of(families(full, {"node": "a"}), "node")


def of_the_site() -> Described:
    client: Any = SimpleNamespace(asks=1, answers=1, pending={}, drops=Counter({("shop.Cart", "timeout"): 1}))
    rows: Any = SimpleNamespace(
        members=[],
        types=[TypeRow(1, RESIZED, datetime(2026, 1, 1, tzinfo=UTC))],
        shards=[ShardGroup(type="shop.Cart", step="stopped", home=None, shards=1)],
        coordinator=CoordinatorRow(1, None),
        has_coordinator=False,
        events=1,
        messages=1,
        message_counts=[MessageCounts(type="shop.Cart")],
        uncounted=[],
    )
    table = TableHealth(
        name="sharding_event",
        table_bytes=1,
        index_bytes=1,
        live_rows=1,
        dead_rows=1,
        vacuumed_seconds=None,
        age=1,
    )
    projection = ProjectionLook(ProjectionStatus("shop.Open", 1, True, False, True, []), declared=True)
    found = [
        *own_families(client),
        *live_families([]),
        *cluster_families(rows),
        *database_families(Health(tables=[table])),
        *projection_families([projection]),
        *journal_families([JournalCounts(name="b")]),
    ]
    return {**of(found), "sharding_database_up": ("gauge", frozenset())}


def listed(section: str) -> Described:
    text = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)
    (found,) = [each for each in text if each.startswith(section)]
    return {
        each["name"]: (each["kind"], frozenset(re.findall(r"`(\w+)`", each["labels"])))
        for each in LINE.finditer(found)
    }


def test_the_page_lists_every_metric() -> None:
    assert listed("Of a node") == of_a_node()
    assert listed("Of the site") == of_the_site()
