"""The judge of the projection in the mixed runs accepts a table that equals the journal, and finds
each difference that is planted.
"""

from datetime import UTC, datetime
from typing import Any

import pytest

from sharding_app.adapters.django.projections import PartStatus
from tests.acceptance.summed.sums import Look, Sum, check_sums

PART = PartStatus(0, 127, 5, False, "", datetime(2026, 1, 1, tzinfo=UTC), 0, False, 0.0, 0, 0)
JOURNAL = [Sum("r0a1", 700, 3, 3), Sum("r0a2", -200, 2, 2)]


def test_a_table_that_equals_the_journal() -> None:
    assert check_sums(Look([PART], JOURNAL, [*reversed(JOURNAL)])) == []


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        pytest.param({"cents": 900, "events": 4}, "r0a1: the journal has 700 cents in 3 events", id="handled twice"),
        pytest.param({"events": 2}, "has 700 cents in 2 events up to 3", id="skipped"),
        pytest.param({"cents": 701}, "has 701 cents", id="another event"),
        pytest.param({"last": 2, "displaced": 2}, "up to 2, 2 of them out of place", id="out of order"),
    ],
)  # fmt: skip
def test_a_difference_is_found(changed: dict[str, Any], found: str) -> None:
    (broken,) = check_sums(Look([PART], JOURNAL, [JOURNAL[0]._replace(**changed), JOURNAL[1]]))
    assert broken.startswith("promise 17: ")
    assert found in broken


def test_rows_that_only_one_side_has_are_found() -> None:
    broken = check_sums(Look([PART], JOURNAL[:1], JOURNAL[1:]))
    assert [each.partition(", acceptance.Sums ")[0::2] for each in broken] == [
        ("promise 17: r0a1: the journal has 700 cents in 3 events up to 3", "has nothing"),
        ("promise 17: r0a2: the journal has nothing", "has -200 cents in 2 events up to 2"),
    ]


@pytest.mark.parametrize(
    "part",
    [
        PART._replace(behind_events=1), PART._replace(behind_more=True), PART._replace(is_filling=True),
        PART._replace(waiting=1, parked=1), None,
    ],
)  # fmt: skip
def test_a_projection_that_has_not_caught_up_is_found(part: PartStatus | None) -> None:
    """Equal sums may be chance while events are under way."""
    assert len(check_sums(Look([part] if part else [], JOURNAL, JOURNAL))) == 1
