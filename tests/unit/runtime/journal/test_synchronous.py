"""The server's synchronous standby is away: commits are visible, may be lost yet, and are
acknowledged to no caller.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sharding_app import AskTimeout
from sharding_app.adapters.memory import MemoryJournal, MemoryServer, Plan
from sharding_app.adapters.memory.faults import ServerFaults
from sharding_app.adapters.memory.standby import GIVE_UP_SECONDS
from sharding_app.ports.journal import JournalUnavailable
from sharding_app.runtime.base.shared_round import Rounds
from sharding_app.testing.cluster import MemoryCluster
from tests.support.given import event_row
from tests.unit.runtime.one_of_each import Cart, HotCart
from tests.unit.runtime.waiting import travel, until

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def two() -> AsyncIterator[MemoryCluster]:
    async with MemoryCluster(nodes=2) as made:
        with made.in_use():
            yield made


@pytest.mark.parametrize("kind", [Cart, HotCart])
async def test_callers_are_told_that_the_fate_is_unknown_and_a_retry_gives_the_stored_reply(
    cluster: MemoryCluster, kind: type[Cart]
) -> None:
    assert await kind.ref("a").add("book") == 1
    cluster.server.standby.part()
    once = kind.ref("a", command_id="buy-1", timeout=3)
    for _ in range(6):  # longer than the journal waits for an answer
        asked = asyncio.ensure_future(once.add("book"))
        looked = asyncio.ensure_future(kind.ref("a", timeout=3).total())
        await travel(4)
        with pytest.raises(AskTimeout):
            await asked
        with pytest.raises(AskTimeout):
            await looked
    assert len(cluster.events(kind, "a")) == 2, "visible all the while"
    cluster.server.standby.join()
    asked = asyncio.ensure_future(once.add("book"))
    await travel(2 * GIVE_UP_SECONDS)
    assert await asked == 2
    assert await kind.ref("a").total() == 2


async def test_a_promotion_takes_back_what_was_never_acknowledged(two: MemoryCluster) -> None:
    assert await Cart.ref("a").add("book") == 1
    two.server.standby.part()
    asked = asyncio.ensure_future(Cart.ref("a", timeout=3).add("book"))
    await travel(GIVE_UP_SECONDS * 2)
    with pytest.raises(AskTimeout):
        await asked
    assert len(two.events(Cart, "a")) == 2
    lost = []
    two.server.standby.on_lost = lambda: lost.append(len(two.events(Cart, "a")))
    two.server.fail_over()
    assert lost == [1]
    await travel(30)
    # Nothing had been said of the second one: whether it is done again or not, all agree on what is
    # there.
    total = await Cart.ref("a").total()
    assert total == len(two.events(Cart, "a")) >= 1
    assert await Cart.ref("a").add("book") == total + 1


async def test_a_new_home_says_nothing_of_what_is_visible_and_not_secure(two: MemoryCluster) -> None:
    """The former home dies with a commit that waits for the standby; a retry and a query arrive at
    the next home.
    """
    assert await Cart.ref("a").add("book") == 1
    two.server.standby.part()
    once = Cart.ref("a", command_id="buy-1", timeout=60)
    asked = asyncio.ensure_future(once.add("book"))
    looked = asyncio.ensure_future(Cart.ref("a", timeout=60).total())
    await until(lambda: len(two.events(Cart, "a")) == 2)
    await two.kill_node(two.home_of(Cart, "a"))
    await travel(30)
    assert not looked.done()
    assert not asked.done()
    two.server.standby.join()
    await travel(2 * GIVE_UP_SECONDS)
    assert await asked == 2
    assert await looked == 2


class Insecure:
    """Faults of the server as before, and commits that secure what is read are not answered."""

    def __init__(self, inner: ServerFaults) -> None:
        self._inner = inner
        self.lasts = True
        self.refused = 0

    def plan(self, client: str, kind: str) -> Plan | None:
        if kind != "secure" or not self.lasts:
            return self._inner.plan(client, kind)
        self.refused += 1
        return Plan(execute_after=None, answer_after=None, lost_after=1.0)


async def test_a_shard_starts_when_what_its_home_reads_is_secure(two: MemoryCluster) -> None:
    """Its row is written and read; the commit that secures it is not answered, so nothing of the
    shard is hosted.
    """
    assert await Cart.ref("a").add("book") == 1
    home = two.home_of(Cart, "a")
    assert two.server.faults is not None
    faults = Insecure(two.server.faults)
    two.server.faults = faults
    await two.kill_node(home)
    looked = asyncio.ensure_future(Cart.ref("a", timeout=60).total())
    await until(lambda: faults.refused > 2)
    (heir,) = two.nodes.values()
    homes = {row.home for row in two.server.cluster.rows(["entities.Cart"])}
    assert homes == {heir.incarnation}, "so say the rows"
    assert not looked.done()
    faults.lasts = False
    await travel(5)
    assert await looked == 1


async def test_reads_are_answered_and_refusals_too_while_the_standby_is_away() -> None:
    server = MemoryServer()
    server.cluster.epochs[1, 0] = 1
    journal = MemoryJournal(server)
    await journal.append([event_row(1, "a", 1)])
    server.standby.part()
    assert len((await journal.read(1, ["a"]))["a"].events) == 1
    assert not await journal.settle([event_row(1, "a", 2)])
    with pytest.raises(Exception, match="newer epoch"):
        await journal.append([event_row(1, "a", 2, epoch=7)])


async def test_who_asks_while_a_round_runs_waits_for_the_next_one() -> None:
    runs: list[asyncio.Future[None]] = []

    async def job() -> None:
        runs.append(asyncio.get_running_loop().create_future())
        await runs[-1]

    rounds = Rounds(job)
    first = asyncio.ensure_future(rounds.next())
    await travel(0.01)
    later = [asyncio.ensure_future(rounds.next()) for _ in range(50)]
    await travel(0.01)
    assert len(runs) == 1, "they share the next one"
    later[0].cancel()
    runs[0].set_result(None)
    await first
    await travel(0.01)
    assert len(runs) == 2
    runs[1].set_exception(JournalUnavailable("away"))
    done = await asyncio.gather(*later, return_exceptions=True)
    assert isinstance(done[0], asyncio.CancelledError)
    assert all(isinstance(each, JournalUnavailable) for each in done[1:])
    assert len(runs) == 2
