"""The report that `sharding_status --json` prints."""

import dataclasses

import pytest

from sharding_app.operations.snapshot import MessageCounts
from sharding_app.operations.status import report
from tests.unit.operations.looks import cluster, nodes

COUNTS = MessageCounts(type="shop.Cart", overdue=3, failing=2, parked=1)


@pytest.mark.parametrize(
    ("counts", "uncounted", "told"),
    [
        ([COUNTS], [], (3, 2, 1)),
        ([], [], (0, 0, 0)),
        ([COUNTS], ["two"], (None, None, None)),
    ],
)
def test_messages_that_are_not_counted_are_not_zero(
    counts: list[MessageCounts], uncounted: list[str], told: tuple[int | None, ...]
) -> None:
    read = dataclasses.replace(cluster(), message_counts=counts, uncounted=uncounted)
    (row,) = report(read, nodes()).as_json()["types"]
    assert (row["messages_overdue"], row["messages_failing"], row["messages_parked"]) == told
