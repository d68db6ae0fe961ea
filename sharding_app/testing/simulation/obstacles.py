"""Obstacles to single rows on the virtual server, which then answers with an error.

They are a user's own triggers and constraints on the table of events, and other sessions that hold
the rows of shards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING
from zlib import crc32

from sharding_app.adapters.memory.cluster_writes import shard_key
from sharding_app.adapters.memory.locks import Outsider
from sharding_app.adapters.memory.sessions import ServerError
from sharding_app.ports.journal import EventRow, RowRefused
from sharding_app.protocol.ids import ShardId

if TYPE_CHECKING:
    from sharding_app.adapters.memory.server import MemoryServer

Refuses = Callable[[EventRow], bool]


class Obstacles:
    def __init__(self, servers: Sequence[MemoryServer], token_of: Callable[[EventRow], str]) -> None:
        self.refused: dict[str, None] = {}
        "Tokens whose row a constraint has refused."
        self._closed: dict[str, float] = {}
        "Entities whose rows a trigger refuses, and the time that the refusal takes."
        self._constraints: list[Refuses] = []
        self._locked: dict[tuple[int, ShardId, MemoryServer], Outsider] = {}
        self._token_of = token_of
        for server in servers:
            server.journal.on_row = self._look

    def close(self, entity: str, seconds: float = 0.0) -> None:
        """Let a trigger raise for an entity's rows, with an error that does not blame the row."""
        self._closed[entity] = seconds

    def open(self, entity: str) -> None:
        self._closed.pop(entity, None)

    def refuse(self, refuses: Refuses) -> Callable[[], None]:
        """Have a constraint refuse rows until the returned function is called."""
        self._constraints.append(refuses)
        return lambda: self._constraints.remove(refuses) if refuses in self._constraints else None

    def lock(self, type_id: int, shard: ShardId, server: MemoryServer) -> None:
        """Let a session that is none of ours hold the row of a shard. It ends with its server."""
        self.unlock(type_id, shard, server)
        held = server.locks.hold(shard_key(type_id, shard), "a forgotten shell")
        self._locked[type_id, shard, server] = held

    def unlock(self, type_id: int, shard: ShardId, server: MemoryServer) -> None:
        if (outsider := self._locked.pop((type_id, shard, server), None)) is not None:
            server.locks.release(outsider)

    def heal(self) -> None:
        self._closed.clear()
        self._constraints.clear()
        for key in list(self._locked):
            self.unlock(*key)

    def _look(self, row: EventRow, index: int) -> None:
        seconds = self._closed.get(row.entity)
        if seconds is not None:
            raise ServerError("P0001", "closed today", seconds)
        if any(refuses(row) for refuses in self._constraints):
            token = self._token_of(row)
            self.refused[token] = None
            # A server that looks only at the end of the statement does not name the row.
            raise RowRefused("a constraint is violated (23514)", index if crc32(token.encode()) % 2 else None)
