"""Places of messages in the order of an entity that numbers no events."""

import pytest

from sharding_app.protocol.coordinator.terms import lowest_epoch, next_term
from tests.unit.runtime.delivery.test_pages import Pages, deliverer_of

pytestmark = pytest.mark.asyncio

YEAR_2100 = 4_102_444_800
LATE = lowest_epoch(next_term(7, same_lineage=False, now_seconds=YEAR_2100, timeline=15))


async def test_they_fit_into_their_columns_after_a_failover() -> None:
    made = deliverer_of(Pages({}), lambda job: job.close())
    made._placed = 2**41 - 3
    seq, position = made.new_place(LATE, 2)
    assert seq < 2**63
    assert position + 1 < 2**31


async def test_each_is_behind_those_before_it_and_one_commit_has_one_number() -> None:
    made = deliverer_of(Pages({}), lambda job: job.close())
    made._placed = 2**31 - 5
    commits = [made.new_place(3, 3) for _ in range(3)]
    assert commits == sorted(set(commits))
    assert [position for _, position in commits] == [2**31 - 5, 0, 3]
    assert commits[-1] < deliverer_of(Pages({}), lambda job: job.close()).new_place(4, 1)
