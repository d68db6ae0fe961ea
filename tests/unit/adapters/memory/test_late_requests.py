"""The virtual journal, and requests that may execute after their client has given them up."""

import asyncio
from collections.abc import Callable

import pytest

from sharding_app.adapters.memory import MemoryJournal, MemoryServer, Plan
from sharding_app.ports.journal import Erasure, JournalUnavailable, Snapshot
from sharding_app.protocol.records import Lineage
from tests.support.given import event_row
from tests.support.slack import SLACK

pytestmark = pytest.mark.asyncio

LOST, EXECUTED = 1.0, 2.0


class LateSnapshots:
    """Implements `ServerFaults`. A request to save snapshots executes after its client has given it
    up.
    """

    def __init__(self) -> None:
        self.due: dict[float, Callable[[], object]] = {}
        self.sent = asyncio.Event()

    def plan(self, client: str, kind: str) -> Plan | None:
        return Plan(EXECUTED, None, LOST) if kind == "save_snapshots" else None

    def later(self, seconds: float, callback: Callable[[], object]) -> None:
        self.due[seconds] = callback
        self.sent.set()


async def erase(journal: MemoryJournal) -> Erasure:
    return await journal.erase(1, 0, 1, "a", at_most=100, before=Erasure(), by="an operator")


@pytest.mark.parametrize("in_line", [False, True], ids=["asked_for_later", "in_line_behind_it"])
async def test_no_late_request_executes_after_an_erasure(in_line: bool) -> None:
    """As on PostgreSQL (tests/integration/adapters/postgres/test_journal_failures.py). The erasure
    may wait for its turn already when the request before it is given up.
    """
    late = LateSnapshots()
    server = MemoryServer(faults=late, later=late.later)
    server.cluster.epochs[1, 0] = 1
    journal = MemoryJournal(server)
    await journal.append([event_row(1, "a", 1)])
    saving = asyncio.create_task(journal.save_snapshots([Snapshot(1, "a", 1, 0, 1, b"{}")]))
    await late.sent.wait()
    erasing = asyncio.create_task(erase(journal)) if in_line else None
    await asyncio.sleep(0)
    late.due[LOST]()
    with pytest.raises(JournalUnavailable):
        await saving
    erasing = erasing or asyncio.create_task(erase(journal))
    assert await erasing == Erasure(events=1)
    late.due[EXECUTED]()
    assert not any(server.journal.snapshots.values())


class Slow:
    """Implements `ServerFaults`. Reads and appends execute at once, and are answered by the
    test.
    """

    def __init__(self) -> None:
        self.answer: Callable[[], object] = lambda: None
        self.has_executed = asyncio.Event()

    def plan(self, client: str, kind: str) -> Plan | None:
        return Plan(0.0, 1.0) if kind in ("read", "append") else None

    def later(self, seconds: float, callback: Callable[[], object]) -> None:
        if seconds:
            self.answer = callback
            self.has_executed.set()
        else:
            callback()


@pytest.mark.parametrize("kind", ["read", "append"])
async def test_what_was_asked_in_another_lineage_is_not_answered_any_more(kind: str) -> None:
    """As on PostgreSQL (tests/integration/adapters/postgres/test_promotion.py)."""
    slow = Slow()
    server = MemoryServer(faults=slow, later=slow.later)
    server.cluster.epochs[1, 0] = 1
    journal = MemoryJournal(server)
    lived = server.identity.lineage
    journal.live_in(lived)
    read = kind == "read"
    asked = asyncio.ensure_future(journal.read(1, ["a"]) if read else journal.append([event_row(1, "a", 1)]))
    async with asyncio.timeout(10 * SLACK):
        await slow.has_executed.wait()
    journal.live_in(Lineage(lived.system, lived.timeline + 1))
    slow.answer()
    with pytest.raises(JournalUnavailable, match="gone on elsewhere") as lost:
        await asyncio.wait_for(asked, 10 * SLACK)
    assert not lost.value.answered
