"""A cluster whose store of remembered entities, or of homes, fails in a chosen way at a chosen
step.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from sharding_app.adapters.memory import MemoryStore
from sharding_app.ports.journal import JournalUnavailable, Mark
from sharding_app.ports.store import StoreUnavailable
from sharding_app.protocol.ids import ShardId
from sharding_app.protocol.records import HomeChange, ShardRow
from sharding_app.runtime.base.config import NodePorts
from sharding_app.testing.cluster import MemoryCluster
from sharding_app.testing.faults import BreakableJournal


class Fault:
    """What goes wrong, where, how often. `met` counts the times it did; `writes` are all batches of
    marks, in order.
    """

    def __init__(self) -> None:
        self.place = ""
        self.mode = ""
        self.times = 0
        self.met: Counter[str] = Counter()
        self.writes: list[list[Mark]] = []
        self.waiting = 0
        self.held: asyncio.Event | None = None
        "Until it is set, writes of marks wait."

    def at(self, place: str, mode: str, times: int = 2) -> None:
        self.place, self.mode, self.times = place, mode, times

    async def step(self, place: str, error: type[Exception], work: Callable[[], Awaitable[Any]]) -> Any:
        if place != self.place or not self.times:
            return await work()
        self.times -= 1
        self.met[self.mode] += 1
        match self.mode:
            case "no response":
                await asyncio.sleep(0.1)
                raise error("no answer within 0.1 s")
            case "crash":
                raise error("it has crashed")
            case "stop":
                await work()
                raise error("it has stopped after it was done")
            case "short delay":
                await asyncio.sleep(0.1)
            case "long delay":
                await asyncio.sleep(0.3)
        return await work()


MODES = ("no response", "crash", "stop", "short delay", "long delay")


class FaultyCluster(MemoryCluster):
    fault: Fault

    def _node_ports(self, incarnation: str) -> NodePorts:
        ports = super()._node_ports(incarnation)
        fault = self.fault

        class FaultyJournal(BreakableJournal):
            async def remember(self, marks: Sequence[Mark]) -> None:
                if fault.held is not None:
                    fault.waiting += 1
                    await fault.held.wait()
                    fault.waiting -= 1
                place = "start" if any(each.runs for each in marks) else "stop"
                await fault.step(
                    place, JournalUnavailable, lambda: super(FaultyJournal, self).remember(marks)
                )
                fault.writes.append(list(marks))

            async def recall(self, type_id: int, shards: Sequence[ShardId]) -> dict[ShardId, list[str]]:
                def work() -> Awaitable[dict[ShardId, list[str]]]:
                    return super(FaultyJournal, self).recall(type_id, shards)

                found: dict[ShardId, list[str]] = await fault.step("load", JournalUnavailable, work)
                return found

        class FaultyStore(MemoryStore):
            async def decide(self, term: int, changes: Sequence[HomeChange]) -> list[ShardRow]:
                def work() -> Awaitable[list[ShardRow]]:
                    return super(FaultyStore, self).decide(term, changes)

                rows: list[ShardRow] = await fault.step("add shard", StoreUnavailable, work)
                return rows

        ports.journal = FaultyJournal(self.server, incarnation, self.write_failures, self._gate)
        ports.store = FaultyStore(self.server, incarnation)
        return ports
