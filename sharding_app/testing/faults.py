"""Faults of the in-memory cluster: dead processes, and failing journal writes."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple

from sharding_app.adapters.memory import MemoryJournal, MemoryNetwork, MemoryServer, MemoryTransport, Plan
from sharding_app.ports.deliveries import MessageChanges
from sharding_app.ports.journal import EventRow, RowRefused
from sharding_app.ports.transport import TransportError


class DeadProcesses:
    """`ServerFaults` and `NetworkFaults` of killed processes: all their traffic is lost."""

    def __init__(self) -> None:
        self.killed: set[str] = set()
        self.ended: set[str] = set()
        "Those of them whose processes are no more."

    def plan(self, client: str, kind: str) -> Plan | None:
        return Plan(execute_after=None, lost_after=0.0) if client in self.killed else None

    def refuses(self, client: str) -> bool:
        return client in self.killed

    def route(self, client: str, channel: str) -> Sequence[float] | None:
        dead = client in self.killed or channel.rpartition(".")[2] in self.killed
        return () if dead else None


class MortalTransport(MemoryTransport):
    """The transport of a process that may be killed.

    A dead process hears nothing and reports no trouble while its objects are put away. One that is
    only cut off does.
    """

    def __init__(self, network: MemoryNetwork, client: str, dead: DeadProcesses) -> None:
        super().__init__(network, client)
        self._dead, self._me = dead, client

    async def send(self, channel: str, data: bytes) -> None:
        if self._me not in self._dead.ended:
            await super().send(channel, data)

    async def receive(self) -> bytes:
        try:
            return await super().receive()
        except TransportError:
            if self._me in self._dead.ended:
                await asyncio.get_running_loop().create_future()  # until its task is cancelled
            raise


class WriteFailure(NamedTuple):
    """One append that is to fail."""

    type_id: int | None
    entity: str | None
    reason: str
    times: int


class WriteFailures:
    """The writes of a cluster that are to fail, in the order in which they were asked for."""

    def __init__(self) -> None:
        self._planned: list[WriteFailure] = []
        self.failed = 0

    def add(self, type_id: int | None, entity: str | None, reason: str, times: int) -> None:
        self._planned.append(WriteFailure(type_id, entity, reason, times))

    def check(self, rows: Sequence[EventRow]) -> None:
        """Raise as the server would, if one of these rows is to fail."""
        for place, wanted in enumerate(self._planned):
            for index, row in enumerate(rows):
                if wanted.type_id in (None, row.type_id) and wanted.entity in (None, row.entity):
                    self.failed += 1
                    if wanted.times > 1:
                        self._planned[place] = wanted._replace(times=wanted.times - 1)
                    else:
                        del self._planned[place]
                    raise RowRefused(wanted.reason, index)


class BreakableJournal(MemoryJournal):
    """The in-memory journal, whose next writes may be told to fail, or to wait."""

    def __init__(
        self, server: MemoryServer, client: str, failures: WriteFailures, gate: Callable[[], object]
    ) -> None:
        super().__init__(server, client)
        self._failures = failures
        self._gate = gate

    async def append(
        self, rows: Sequence[EventRow], changes: MessageChanges | None = None, *, on: int = 0
    ) -> datetime | None:
        waits = self._gate()
        if waits is not None:
            await waits  # type: ignore[misc]
        self._failures.check(rows)
        return await super().append(rows, changes, on=on)
