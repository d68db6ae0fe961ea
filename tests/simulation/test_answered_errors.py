"""A virtual server that answers with errors: it has done nothing, and it is there."""

import pytest

from sharding_app.adapters.memory import MemoryJournal, MemoryLifelineSession, MemoryServer, MemoryStore, Plan
from sharding_app.adapters.memory.cluster_writes import shard_key
from sharding_app.adapters.memory.sessions import ServerError
from sharding_app.ports.journal import JournalUnavailable, RowRefused
from sharding_app.ports.lifeline import SessionLost
from sharding_app.ports.store import StoreUnavailable
from sharding_app.testing.simulation.fault_policy import TROUBLES, Trouble
from sharding_app.testing.simulation.obstacles import Obstacles
from tests.support.given import event_row, member

pytestmark = pytest.mark.asyncio


class Answers:
    """Each request of these kinds is answered with an error."""

    def __init__(self, *kinds: str, state: str = "53100") -> None:
        self.kinds = kinds
        self.state = state

    def plan(self, client: str, kind: str) -> Plan | None:
        return Plan(error=ServerError(self.state, "no")) if kind in self.kinds else None


def server_with(faults: Answers) -> MemoryServer:
    server = MemoryServer(faults=faults)
    server.cluster.epochs[1, 0] = 1
    return server


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: trouble.state)
async def test_nothing_is_done_and_the_server_is_there(trouble: Trouble) -> None:
    faults = Answers("append", state=trouble.state)
    journal = MemoryJournal(server_with(faults))
    with pytest.raises(JournalUnavailable, match=trouble.state) as failed:
        await journal.append([event_row(1, "a", 1)])
    assert failed.value.answered
    assert not await journal.settle([event_row(1, "a", 1)])
    before = journal.backends[0]
    faults.kinds = ()
    await journal.append([event_row(1, "a", 1)])
    assert (journal.backends[0] == before) is (trouble.state != "25006"), "a server that only reads is left"


async def test_other_adapters_raise_what_they_do_for_a_real_server() -> None:
    faults = Answers("join", "remember", "raise_term")
    server = server_with(faults)
    with pytest.raises(StoreUnavailable) as failed:
        await MemoryStore(server).join(member("one"), (1, 2))
    assert failed.value.answered
    with pytest.raises(JournalUnavailable):
        await MemoryJournal(server).remember([])
    server.cluster.join(member("one"), (1, 2))
    session = MemoryLifelineSession(server, "one")
    await session.open()
    assert await session.lock(1)
    with pytest.raises(SessionLost):
        await session.elect("one")
    assert server.sessions.holder(1) is None, "what the session holds is not certain: it is closed"


async def test_a_server_that_is_down_answers_nothing() -> None:
    server = server_with(Answers("append"))
    journal = MemoryJournal(server)
    await journal.connect()
    server.stop()
    with pytest.raises(JournalUnavailable) as failed:
        await journal.append([event_row(1, "a", 1)])
    assert not failed.value.answered


async def test_locks_of_others_end_with_their_server() -> None:
    server = MemoryServer()
    obstacles = Obstacles([server], lambda row: row.entity)
    obstacles.lock(1, 0, server)
    server.standby.part(asynchronous=True)
    obstacles.unlock(1, 0, server)
    server.fail_over()
    assert server.locks.holder(shard_key(1, 0)) is None


async def test_a_constraint_refuses_its_rows_and_a_trigger_raises_for_its_entities() -> None:
    server = server_with(Answers())
    obstacles = Obstacles([server], lambda row: row.entity)
    journal = MemoryJournal(server)
    allow = obstacles.refuse(lambda row: row.entity == "bad")
    rows = [event_row(1, "a", 1), event_row(1, "bad", 1)]
    with pytest.raises(RowRefused) as refused:
        await journal.append(rows)
    assert refused.value.index in (1, None)
    assert obstacles.refused == {"bad": None}
    allow()
    obstacles.close("a")
    with pytest.raises(JournalUnavailable, match="P0001") as failed:
        await journal.append(rows)
    assert failed.value.answered
    obstacles.open("a")
    await journal.append(rows)
    assert sorted(server.journal.events) == [(1, "a"), (1, "bad")]
