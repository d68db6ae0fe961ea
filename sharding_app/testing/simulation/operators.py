"""What an operator does with messages and timers: the statements of `operations.messages`, on the
virtual server. Then the owner's home is told.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sharding_app.adapters.memory.connection import Connection
from sharding_app.adapters.memory.journal import LOCK_SECONDS
from sharding_app.adapters.memory.locks import Lock
from sharding_app.adapters.memory.message_rows import Stored
from sharding_app.adapters.memory.message_writes import message_key
from sharding_app.adapters.memory.server import MemoryServer
from sharding_app.adapters.memory.steps import Pause, Steps
from sharding_app.protocol.builtin_commands import DUE
from sharding_app.protocol.call import Call
from sharding_app.runtime.node.process import Process

if TYPE_CHECKING:
    from sharding_app.testing.simulation.world import World


async def run_now(world: World, process: Process, message: str) -> None:
    """Let a message or a timer go out now, or a parked one once more."""

    def changed(stored: Stored) -> Stored:
        now = world.server.date()
        due = now if stored.parked else min(stored.due, now)
        return stored._replace(due=due, failures=0, parked=False, error="")

    await _change(world, process, message, changed)


async def discard(world: World, process: Process, message: str) -> None:
    """Delete the row of a message or a timer."""
    await _change(world, process, message, lambda _: None)


async def _change(
    world: World, process: Process, message: str, changed: Callable[[Stored], Stored | None]
) -> None:
    server = _server_with(world, message)
    messages = server.messages

    def change() -> Steps[Stored | None]:
        if message in messages.rows:
            yield Lock(message_key(message))
        yield Pause.COMMIT
        stored = messages.rows.get(message)
        if stored is None:
            return None
        after = changed(stored)
        if after is None:
            messages.pop(message)
        else:
            messages.replace(message, after)
        return stored

    connection = Connection(server, process.incarnation, lock_seconds=LOCK_SECONDS)
    try:
        found = await connection.reach("operate", change)
    finally:
        connection.close()
    if found is not None:
        names = {number: name for name, number in world.server.cluster.type_ids.items()}
        row = found.row
        process.ask(Call(names[row.type_id], row.entity, DUE, message.encode(), tell=True))


def _server_with(world: World, message: str) -> MemoryServer:
    """Return the server of the journal in which a message lies."""
    for name, server in world.servers.items():
        stored = server.messages.rows.get(message)
        if stored is not None:
            type_name = world.witness.name_of(stored.row.type_id)
            if stored.row.epoch is None or world.where.lies_in(name, type_name, stored.row.shard):
                return server
    return world.server
