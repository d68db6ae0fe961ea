"""Virtual time, and what may go wrong between the processes of an in-memory cluster: one fault at a
time, when told.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime

from sharding_app.adapters.memory import MemoryJournal, Plan
from sharding_app.adapters.memory.sessions import ConnectionLost
from sharding_app.adapters.memory.steps import Steps
from sharding_app.ports.deliveries import MessageChanges
from sharding_app.ports.journal import EventRow, JournalUnavailable
from sharding_app.testing.clock import TravelLoop
from sharding_app.testing.faults import DeadProcesses

PLANS = {
    "never": Plan(execute_after=None, answer_after=None, lost_after=0.02),
    "answer lost": Plan(execute_after=0.0, answer_after=None, lost_after=0.02),
    "late": Plan(execute_after=0.3, answer_after=None, lost_after=0.02),
    "slow": Plan(execute_after=0.2, answer_after=0.1),
}
"""What may become of a request to the server. "late": it is executed after the client has given it
up.
"""
LOOK_SECONDS = 1e-7
REQUESTS = (
    "append", "read", "read_from", "read_snapshot", "last_seq", "read_last", "outcome", "save_snapshots", "trim", "trimmable", "settle",
)  # fmt: skip


class VirtualLoop(TravelLoop):
    """Time passes only where a task waits for it, so that one history takes the same way each time.

    Looking at the clock takes a moment too: else a wait that rounding has left a trace too short
    would never end.
    """

    def time(self) -> float:
        self._skipped += LOOK_SECONDS
        return self._skipped


class Trouble:
    """`ServerFaults` and `NetworkFaults`: dead processes, and the next requests and messages that
    are to suffer.
    """

    def __init__(self, dead: DeadProcesses) -> None:
        self._dead = dead
        self._plans: dict[str, deque[Plan]] = {}
        self.copies: deque[tuple[float, ...]] = deque()
        "The delays at which copies of the next messages arrive: none if it is lost."

    def next(self, request: str, plan: str) -> None:
        self._plans.setdefault(request, deque()).append(PLANS[plan])

    def over(self) -> None:
        """From now on all is well; who is dead stays dead."""
        self._plans.clear()
        self.copies.clear()

    def plan(self, client: str, kind: str) -> Plan | None:
        waiting = self._plans.get(kind)
        return self._dead.plan(client, kind) or (waiting.popleft() if waiting else None)

    def refuses(self, client: str) -> bool:
        return self._dead.refuses(client)

    def route(self, client: str, channel: str) -> Sequence[float] | None:
        found = self._dead.route(client, channel)
        return self.copies.popleft() if found is None and self.copies else found


class ListTogether:
    """`runtime.base.interfaces.Together` with a list for the user's table: the virtual server does
    both in one step.
    """

    def __init__(self, journal: MemoryJournal) -> None:
        self._journal = journal

    async def __call__(
        self,
        rows: Sequence[EventRow],
        functions: Sequence[Callable[[], object]],
        changes: MessageChanges | None = None,
    ) -> datetime | None:
        journal = self._journal

        def commit() -> Steps[datetime | None]:
            at = yield from journal._writes.append(rows, changes)
            for function in functions:
                function()
            return at

        try:
            return await journal._writers[0].reach("append", commit)
        except ConnectionLost as lost:
            while True:
                try:
                    if await journal.settle(rows):
                        return None
                except JournalUnavailable:
                    await asyncio.sleep(0.05)
                    continue
                raise JournalUnavailable(str(lost)) from lost

    async def held_up(self, type_id: int, entity: str) -> str:
        """Return nothing: no server is asked."""
        return ""

    async def close(self) -> None:
        """Nothing is held."""
