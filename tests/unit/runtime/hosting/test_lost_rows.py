"""Shards of which DATABASE has lost the rows, while their entities lie in a further journal."""

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sharding_app.protocol.ids import shard_of
from sharding_app.runtime.base.config import NodeConfig
from tests.unit.runtime.two_journals import SECOND, SHARDS, Purse, TwoJournals, some
from tests.unit.runtime.waiting import until

pytestmark = pytest.mark.asyncio

*HERE, NEW = some("", 4)
THERE = some(SECOND, 8)
KEPT, LOST = THERE[:3], THERE[3:]
CONFIG = NodeConfig(number_of_shards=SHARDS, ask_timeout_seconds=8.0, step_aside_after_seconds=20.0)


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[TwoJournals]:
    async with TwoJournals([Purse], nodes=2, config=CONFIG) as made:
        with made.in_use():
            yield made


async def pay(ids: list[str]) -> dict[str, int]:
    return dict(zip(ids, await asyncio.gather(*(Purse.ref(each).pay(1) for each in ids)), strict=True))


async def lose_rows(cluster: TwoJournals) -> None:
    """Let a standby take over that lacks the rows of shards which have events in the other journal.
    From then on the weights put new shards elsewhere.
    """
    await until(lambda: SECOND in cluster.server.cluster.places)
    await pay([*HERE, *KEPT])
    cluster.server.standby.part(asynchronous=True)
    assert set((await pay(LOST)).values()) == {1}
    cluster.server.fail_over()
    cluster.server.cluster.journal_weights = {"": 1.0}
    rows = cluster.server.cluster.shards
    assert not any(("journals.Purse", shard_of(each, SHARDS)) in rows for each in LOST)


async def fail_over_while_the_journal_is_down(cluster: TwoJournals) -> None:
    """Let a standby take over that has all rows."""
    await until(lambda: SECOND in cluster.server.cluster.places)
    await pay([*HERE, *THERE])
    cluster.second.stop()
    cluster.server.fail_over()


async def test_their_entities_go_on_where_they_were(cluster: TwoJournals) -> None:
    await lose_rows(cluster)
    assert set((await pay(LOST)).values()) == {2}
    assert set((await pay(KEPT)).values()) == {2}
    shards = {shard_of(each, SHARDS) for each in LOST}
    await until(lambda: restored(cluster) == shards)


def restored(cluster: TwoJournals) -> set[int]:
    lines = [each for each in cluster.server.cluster.timeline if each.action == "shards_restored"]
    return {int(each) for line in lines for each in line.detail.split(",")}


async def test_while_a_journal_is_down_shards_without_a_row_wait_and_others_go_on(
    cluster: TwoJournals, caplog: pytest.LogCaptureFixture
) -> None:
    await fail_over_while_the_journal_is_down(cluster)
    with caplog.at_level(logging.WARNING, "sharding.coordinator"):
        waiting = asyncio.create_task(pay([NEW]))
        assert set((await pay(HERE)).values()) == {2}, "those that have rows go on"
        await until(lambda: "journals_unread" in [vars(each).get("action") for each in caplog.records])
        assert not waiting.done()
    cluster.second.start()
    assert await waiting == {NEW: 1}
    assert set((await pay(THERE)).values()) == {2}
