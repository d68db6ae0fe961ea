"""Writes of the user's beside no event: fenced and done once as events are; and commits that
nothing awaits.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest
import pytest_asyncio

from sharding_app import (
    DurableState,
    EventSourced,
    InvalidCall,
    NotSerializable,
    PartiallyApplied,
    ShardingSettings,
    Unavailable,
    WrongContext,
    applies,
    command,
    event,
    query,
)
from sharding_app.adapters.memory import Plan
from sharding_app.adapters.memory.faults import ServerFaults
from sharding_app.entities.event_codec import FINISHED
from sharding_app.ports.journal import EventRow
from sharding_app.protocol.coordinator.settings import CoordinatorSettings
from sharding_app.runtime.base.config import NodeConfig
from sharding_app.runtime.journal.commits import StepFailed
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.waiting import travel, until

pytestmark = pytest.mark.asyncio

rows: list[str] = []


@event
class Paid:
    cents: int


def seen(entity: object, event: object, seq: int) -> bool:
    assert event is not None, "a predicate is asked about events of the user's alone"
    return False


class Biller(EventSourced, name="entities.Biller"):
    settings = ShardingSettings(snapshot_when=seen)
    total: int = 0

    @command
    def bill(self, what: str) -> int:
        self.persist(in_transaction=lambda: rows.append(what))
        return len(rows)

    @command
    async def bill_awaited(self, what: str) -> int:
        await self.persist(in_transaction=lambda: rows.append(what))
        return len(rows)

    @command
    async def bill_and_fail(self, what: str) -> int:
        await self.persist(in_transaction=lambda: rows.append(what))
        raise RuntimeError("after it")

    @command
    def pay(self, cents: int) -> int:
        self.persist(Paid(cents))
        return self.total

    @command
    async def pay_awaited(self, cents: int) -> int:
        await self.persist(Paid(cents))
        return self.total

    @command
    def pay_twice_and_bill(self, cents: int) -> int:
        self.persist(Paid(cents), Paid(cents), in_transaction=lambda: rows.append("bill"))
        return self.total

    @command
    async def pay_beside(self, cents: int) -> int:
        """The commit goes on in a task of its own, and nothing awaits it."""
        tasks.append(asyncio.ensure_future(_awaited(self.persist(Paid(cents)))))
        await asyncio.sleep(0)
        return self.total

    @command
    async def pay_and_let_go(self, cents: int) -> int:
        """The same, and the handler is over before that task begins."""
        tasks.append(asyncio.ensure_future(_awaited(self.persist(Paid(cents)))))
        return self.total

    @command
    async def pay_in_two_tasks(self, what: str) -> int:
        """Two tasks store at the same time, as those of `gather` do, and errors are passed over."""
        function = None if not what else lambda: rows.append(what)
        tasks.append(asyncio.ensure_future(_awaited(self.persist(Paid(5)))))
        await asyncio.sleep(0)
        tasks.append(asyncio.ensure_future(_awaited(self.persist(Paid(7), in_transaction=function))))
        await asyncio.wait(tasks)
        return self.total

    @query
    def sum(self) -> int:
        return self.total

    @applies(Paid)
    def on_paid(self, happened: Paid) -> None:
        self.total += happened.cents


tasks: list[asyncio.Future[None]] = []


async def _awaited(staged: Awaitable[None]) -> None:
    await staged


class Meter(DurableState, name="entities.Meter"):
    count: int = 0

    @command
    def note(self, what: str) -> int:
        self.persist(in_transaction=lambda: rows.append(what))
        return len(rows)


class Slow:
    """Appends are executed at once, and their answers take their time."""

    def __init__(self, inner: ServerFaults) -> None:
        self._inner = inner
        self.answer_after: float | None = None

    def plan(self, client: str, kind: str) -> Plan | None:
        if self.answer_after is not None and kind == "append":
            return Plan(execute_after=0.0, answer_after=self.answer_after)
        return self._inner.plan(client, kind)


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[MemoryCluster]:
    rows.clear()
    tasks.clear()
    config = NodeConfig(coordinator=CoordinatorSettings(hand_off_timeout_seconds=1.0))
    async with MemoryCluster([Biller, Meter], nodes=2, config=config) as made:
        with made.in_use():
            yield made


async def test_all_events_of_a_command_and_its_rows_are_one_transaction(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    transactions: list[tuple[int, int]] = []

    async def noted(
        events: Sequence[EventRow], functions: Sequence[Callable[[], object]], changes: object
    ) -> None:
        transactions.append((len(events), len(functions)))

    for node in cluster.nodes.values():
        monkeypatch.setattr(node.hosts["entities.Biller"].execution, "together", noted)
    assert await Biller.ref("a").pay_twice_and_bill(5) == 10
    assert transactions == [(2, 1)]


@pytest.mark.parametrize(("kind", "name"), [(Biller, "bill"), (Meter, "note")])
async def test_rows_alone_are_written_once_though_the_answer_is_lost(
    cluster: MemoryCluster, kind: type[Biller | Meter], name: str
) -> None:
    """The node dies after the commit and before the answer; the command is sent again to the next
    home.
    """
    assert cluster.server.faults is not None
    slow = Slow(cluster.server.faults)
    cluster.server.faults = slow
    await getattr(kind.ref("bob"), name)("warm")
    rows.clear()
    slow.answer_after = 60.0
    asked = asyncio.ensure_future(
        getattr(kind.ref("bob", command_id="invoice-7", timeout=30), name)("row of invoice-7")
    )
    # A thread runs the function: no time is skipped meanwhile.
    while len(cluster.events_raw(kind, "bob")) < 2:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    slow.answer_after = None
    await cluster.kill_node(cluster.home_of(kind, "bob"))
    assert await asked == 0, "as it was said first: before the function ran"
    assert rows == ["row of invoice-7"]


async def test_rows_alone_leave_a_record_that_recovery_passes_over(cluster: MemoryCluster) -> None:
    once = Biller.ref("bob", command_id="one")
    assert await once.bill("a") == 0
    assert await once.bill("a") == 0
    assert await Biller.ref("bob").bill_awaited("b") == 2
    assert await Biller.ref("bob").pay(5) == 5
    names = [name for name, _, _ in cluster.events_raw(Biller, "bob")]
    assert names == [FINISHED, FINISHED, FINISHED, "Paid"]
    assert cluster.events(Biller, "bob") == [Paid(5)]
    await cluster.kill_node(cluster.home_of(Biller, "bob"))
    assert await Biller.ref("bob").sum() == 5
    assert rows == ["a", "b"]


async def test_awaited_rows_stay_when_their_command_fails(cluster: MemoryCluster) -> None:
    once = Biller.ref("bob", command_id="one")
    with pytest.raises(PartiallyApplied):
        await once.bill_and_fail("a")
    with pytest.raises(PartiallyApplied):
        await once.bill_and_fail("a")
    assert rows == ["a"]


async def test_a_command_that_is_stopped_by_force_in_a_commit_is_not_called_unstored(
    cluster: MemoryCluster,
) -> None:
    assert cluster.server.faults is not None
    await Biller.ref("a").pay(1)
    slow = Slow(cluster.server.faults)
    cluster.server.faults = slow
    slow.answer_after = 4.0
    asked = asyncio.ensure_future(Biller.ref("a", timeout=20).pay_awaited(500))
    await until(lambda: len(cluster.events(Biller, "a")) == 2)
    leaving = asyncio.ensure_future(cluster.stop_node(cluster.home_of(Biller, "a")))
    with pytest.raises(Unavailable) as told:
        await asked
    assert told.value.code == "fate_unknown"
    assert "nothing" not in str(told.value)
    slow.answer_after = None
    await leaving
    assert await Biller.ref("a").sum() == 501


async def test_nothing_is_answered_while_a_commit_of_the_command_is_under_way(cluster: MemoryCluster) -> None:
    """Whether the handler awaits it or not: the answer says that all is stored."""
    assert cluster.server.faults is not None
    slow = Slow(cluster.server.faults)
    cluster.server.faults = slow
    await Biller.ref("a").pay(1)
    slow.answer_after = 2.0
    asked = asyncio.ensure_future(Biller.ref("a", timeout=20).pay_beside(5))
    await travel(1.0)
    assert not asked.done()
    await travel(5.0)
    assert await asked == 6
    assert cluster.events(Biller, "a") == [Paid(1), Paid(5)]


@pytest.mark.parametrize("what", ["", "a row"])
async def test_a_step_beside_one_that_fails_is_not_stored(cluster: MemoryCluster, what: str) -> None:
    """Its number would come behind one that is missing: the entity could never be read again."""
    await Biller.ref("a").pay(1)
    cluster.fail_next_write(Biller, "a", reason="no room")
    with pytest.raises(NotSerializable, match="no room"):
        await Biller.ref("a").pay_in_two_tasks(what)
    failed = [each.exception() for each in tasks]
    assert all(isinstance(each, StepFailed) for each in failed), failed
    assert (cluster.events(Biller, "a"), rows) == ([Paid(1)], [])
    assert await Biller.ref("a").sum() == 1


@pytest.mark.parametrize("what", ["", "a row"])
async def test_steps_of_two_tasks_are_stored_one_after_the_other(cluster: MemoryCluster, what: str) -> None:
    assert await Biller.ref("a").pay_in_two_tasks(what) == 12
    assert [each.exception() for each in tasks] == [None, None]
    assert cluster.events(Biller, "a") == [Paid(5), Paid(7)]
    assert rows == [what] * bool(what)


async def test_what_a_command_has_staged_is_stored_once_though_a_task_of_it_lives_on(
    cluster: MemoryCluster,
) -> None:
    assert await Biller.ref("a").pay_and_let_go(5) == 5
    await travel(1.0)
    with pytest.raises(WrongContext, match="is over"):
        await tasks[0]
    assert cluster.events(Biller, "a") == [Paid(5)]
    assert await Biller.ref("a").pay(1) == 6


async def test_an_id_of_rows_alone_cannot_be_used_for_others(cluster: MemoryCluster) -> None:
    once = Biller.ref("bob", command_id="one")
    await once.bill("a")
    with pytest.raises(InvalidCall, match="other arguments"):
        await once.bill("b")
