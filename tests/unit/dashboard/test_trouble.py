"""What has gone wrong, as the dashboard tells it: entities that cannot start stand before commands
that failed.
"""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sharding_app.dashboard.presenters import overview, trouble
from sharding_app.operations.cache import Look
from sharding_app.protocol.messages import FailedStart, NodeStats, Trouble, TypeStats
from sharding_app.protocol.records import CoordinatorRow
from tests.unit.operations.looks import cluster, holding, member, term_of

NOW = datetime(2026, 5, 4, tzinfo=UTC)
CART = SimpleNamespace(config=SimpleNamespace(name="shop.Cart"), number=7)
NODE = SimpleNamespace(incarnation="n-a", name="a")


def look() -> Look:
    starts = [FailedStart("clock", 0, "LookupError", 12, 90.0, 4.0)]
    carts = TypeStats("shop.Cart", 1, 0, 0, {"recovery_refused": 3}, [], 0.0, [], 1, starts)
    failed = [Trouble(4.0, "shop.Cart", "alice", "add", "ValueError")]
    stats = NodeStats(1, 0.0, {}, {}, {}, [carts], [], failed)
    rows: Any = SimpleNamespace(members=[NODE], types=[CART])
    return Look(cluster=cast(Any, rows), stats={"n-a": stats})


def test_those_that_cannot_start_are_named_with_the_error() -> None:
    first, second = trouble.troubles(look())
    assert (first["entity"], first["number"], first["home"]["name"]) == ("clock", 7, "a")
    assert first["reason"] == "cannot start: LookupError, tried 12 times"
    assert (second["entity"], second["reason"]) == ("alice", "ValueError")


@pytest.mark.parametrize(("entity", "found"), [("clock", 1), ("alice", 1), ("bob", 0)])
def test_an_entitys_page_has_its_own(entity: str, found: int) -> None:
    assert len(trouble.troubles(look(), "shop.Cart", entity)) == found
    assert not trouble.troubles(look(), "shop.Other", entity)


def test_refused_messages_are_counted_with_a_reason_in_words() -> None:
    (refused,) = trouble.drops(look())
    assert (refused["reason"], refused["count"]) == ("the entity recently failed to recover", "3")


def test_the_banner_says_that_the_database_moved_on_and_that_a_node_is_full() -> None:
    rows = cluster(members=[member("a")], coordinator=CoordinatorRow(term_of(NOW), "n-a"), types=[])
    shown = overview.banner(Look(cluster=rows, regions={"n-a": holding(90)}))
    assert shown["healthy"]
    moved_on, full = shown["notes"]
    assert "another copy since 2026-05-04 00:00 UTC" in moved_on
    assert full == "Node a holds 90 entities of shop.Cart, of at most 100."
