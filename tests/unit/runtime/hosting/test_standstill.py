"""A journal that stands still takes half of a calling process's credit at most: calls to the other
journal go on, over the same links.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sharding_app.adapters.memory import Plan
from sharding_app.errors import BufferFull
from sharding_app.protocol.ids import shard_of
from sharding_app.protocol.link.limits import LinkLimits
from sharding_app.protocol.messages import Deliver
from sharding_app.runtime.base.config import NodeConfig
from sharding_app.runtime.hosting.node_host import NodeHost
from sharding_app.runtime.hosting.parked import OVERHEAD_BYTES
from sharding_app.runtime.hosting.type_host import TypeHost
from tests.unit.runtime.two_journals import SECOND, SHARDS, CutOff, Purse, TwoJournals, some
from tests.unit.runtime.waiting import until

pytestmark = pytest.mark.asyncio

WINDOW = 40 * OVERHEAD_BYTES
MANY = 300
PATIENCE = 60.0
LINKS = LinkLimits(window_bytes=WINDOW, max_frame_bytes=WINDOW // 8, max_message_bytes=WINDOW // 4)
HERE, THERE = some("", 5), some(SECOND, 20)
CONFIG = NodeConfig(number_of_shards=SHARDS, ask_timeout_seconds=PATIENCE, links=LINKS)


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[TwoJournals]:
    async with TwoJournals([Purse], nodes=1, config=CONFIG) as made:
        with made.in_use():
            await asyncio.gather(*(Purse.ref(each).pay(1) for each in [*HERE, *THERE]))
            yield made


def hosting(cluster: TwoJournals) -> NodeHost:
    return cluster.nodes["node1"].hosting


def host(cluster: TwoJournals, number: int = 1) -> TypeHost:
    """Return the host of the purses in the second journal, or that in the cluster's own."""
    return hosting(cluster).hosts_of("journals.Purse")[number]


def pay_much(many: int = MANY) -> "list[asyncio.Future[int]]":
    return [asyncio.ensure_future(Purse.ref(THERE[each % len(THERE)]).pay(1)) for each in range(many)]


async def ends(cluster: TwoJournals, calls: "list[asyncio.Future[int]]") -> list[BaseException]:
    """Return the errors of calls, after checking that all others have taken effect once."""
    ended = await asyncio.gather(*calls, return_exceptions=True)
    errors = [each for each in ended if isinstance(each, BaseException)]
    sums = await asyncio.gather(*(Purse.ref(each).sum() for each in THERE))
    assert sum(sums) == len(THERE) + len(calls) - len(errors)
    return errors


async def test_calls_to_other_journals_go_on_while_one_is_down(cluster: TwoJournals) -> None:
    cluster.second.stop()
    calls = pay_much()
    # Without the share these would wait until the first ones of the others have timed out.
    for cents in range(3):
        assert await asyncio.gather(*(Purse.ref(each).pay(1) for each in HERE)) == [cents + 2] * len(HERE)
    await until(lambda: host(cluster).counters["journal_still"] > 0)
    cluster.second.start()
    errors = await ends(cluster, calls)
    assert len(errors) == host(cluster).counters["journal_still"]
    assert {(type(each), getattr(each, "stored", "")) for each in errors} == {(BufferFull, "nothing")}
    assert "LINK_WINDOW_BYTES" in str(errors[0])


@pytest.mark.parametrize("kind", ["append", "own"])
async def test_calls_to_other_journals_go_on_while_one_is_silent(
    cluster: TwoJournals, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Its looks have an answer and its appends have none, or the other way round."""
    silent = {kind, "append"}
    plan = CutOff.plan

    def plans(self: CutOff, client: str, asked: str) -> Plan | None:
        lost = Plan(execute_after=None, lost_after=1.0) if asked in silent else None
        return lost if self.killed is cluster.cut_off_from_second else plan(self, client, asked)

    monkeypatch.setattr(CutOff, "plan", plans)
    calls = pay_much()
    for cents in range(3):
        assert await asyncio.gather(*(Purse.ref(each).pay(1) for each in HERE)) == [cents + 2] * len(HERE)
    assert hosting(cluster).parts[1].stands_still()
    silent.clear()
    errors = await ends(cluster, calls)
    assert {type(each) for each in errors} <= {BufferFull}


async def test_a_slow_journal_slows_its_callers_down_and_refuses_none(
    cluster: TwoJournals, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plans(self: CutOff, client: str, asked: str) -> Plan | None:
        return Plan(answer_after=0.02)

    monkeypatch.setattr(CutOff, "plan", plans)
    assert await ends(cluster, pay_much()) == []


async def test_what_waits_for_a_journal_that_stands_still_counts_for_half_of_the_credit(
    cluster: TwoJournals,
) -> None:
    node, part = hosting(cluster), hosting(cluster).parts[1]
    envelope = Deliver("journals.Purse", 1, 1, "a", 1, "pay", b"")
    for _ in range(35):
        part.backlog.waits("p-client", envelope)
    assert node.waiting_bytes("p-client") == 35 * OVERHEAD_BYTES
    part.fall_silent()
    assert node.waiting_bytes("p-client") == WINDOW // 2
    assert not part.has_room("p-client")
    assert part.has_room("p-other")
    # They come on no link.
    assert part.has_room(node._node.incarnation)
    assert part.has_room("")
    part.is_silent = False
    assert node.waiting_bytes("p-client") == 35 * OVERHEAD_BYTES


@pytest.mark.parametrize("is_known", [True, False])
async def test_early_envelopes_wait_for_the_journal_that_their_shards_row_names(
    cluster: TwoJournals, is_known: bool
) -> None:
    """Before the row is read they may wait for any, and none of them is refused."""
    part = hosting(cluster).parts[1]
    first, told = host(cluster, 0), asyncio.get_running_loop().create_future()

    async def decided(number: int, epoch: int) -> None:
        await told
        first.stopped_at[number] = epoch

    first.shard_life.decided = decided  # type: ignore[method-assign]
    shard = next(each for each in range(SHARDS) if each not in first.shards)
    envelopes = [Deliver("journals.Purse", shard, 2**60, "a", each, "pay", b"") for each in range(1, 31)]
    first.receive("p-client", envelopes[:5])
    if is_known:
        first.early.wait_for(shard, 2**60, part)
    part.fall_silent()
    first.receive("p-client", envelopes[5:])
    assert part.backlog.of("p-client") == (20 if is_known else 0) * OVERHEAD_BYTES
    assert hosting(cluster).waiting_bytes("p-client") == (20 if is_known else 30) * OVERHEAD_BYTES
    assert first.counters["journal_still"] == (10 if is_known else 0)
    told.set_result(None)
    await until(lambda: hosting(cluster).waiting_bytes("p-client") == 0)


async def test_calls_that_come_before_their_shard_wait_for_its_journal(cluster: TwoJournals) -> None:
    """The row has said in which it lies, and it cannot be taken there."""
    entity = some(SECOND, 21)[-1]
    cluster.second.stop()
    call = asyncio.ensure_future(Purse.ref(entity).pay(1))
    shard = shard_of(entity, SHARDS)
    rows = cluster.server.cluster.shards
    await until(lambda: ("journals.Purse", shard) in rows and rows["journals.Purse", shard].home is not None)
    early = Deliver("journals.Purse", shard, rows["journals.Purse", shard].epoch, entity, 1, "sum", b"")
    host(cluster, 0).receive("p-client", [early])
    await until(lambda: hosting(cluster).parts[1].backlog.of("p-client") > 0)
    assert hosting(cluster).parts[0].backlog.of("p-client") == 0
    cluster.second.start()
    assert await call == 1
    await until(lambda: hosting(cluster).waiting_bytes("p-client") == 0)
