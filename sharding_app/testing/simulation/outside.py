"""Messages and timers that a client stores itself: `ref.take.durably(token)` and `.later(...)`.

One row is inserted on a connection of the client's own, as by a view. Then the home of the target
is told. Both may fail: the row may be there without an answer, or without any word to its home.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from sharding_app.adapters.memory.connection import Connection
from sharding_app.adapters.memory.journal import LOCK_SECONDS
from sharding_app.adapters.memory.journal_writes import JournalWrites
from sharding_app.adapters.memory.sessions import ConnectionLost, MayNotEnd, ServerError
from sharding_app.adapters.memory.steps import Steps
from sharding_app.entities.entity_type import EntityType
from sharding_app.ports.deliveries import MessageChanges, MessageRow
from sharding_app.protocol.builtin_commands import DUE
from sharding_app.protocol.call import Call
from sharding_app.protocol.ids import Incarnation
from sharding_app.runtime.node.process import Process
from sharding_app.testing.simulation.message_checker import seconds_of

if TYPE_CHECKING:
    from datetime import datetime

    from sharding_app.testing.simulation.world import World


async def store(
    world: World,
    process: Process,
    entity: tuple[EntityType, str],
    token: str,
    *,
    is_timer: bool = False,
    is_told: bool = True,
) -> None:
    """Store a message or a timer with this token, and tell its home, if it is told at all."""
    entity_type, entity_id = entity
    checker, began = world.witness.messages, world.now
    checker.sent_from_outside(
        process.incarnation, token, f"{entity_type.name}/{entity_id}", is_timer=is_timer
    )
    if await _insert(world, process.incarnation, entity, token, is_timer=is_timer):
        checker.is_stored(token, began)
        if not is_told:
            return
        asked = process.ask(Call(entity_type.name, entity_id, DUE, b"", tell=True))
        asked.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    else:
        checker.is_in_doubt(token)


async def _insert(
    world: World, client: Incarnation, entity: tuple[EntityType, str], token: str, *, is_timer: bool
) -> bool:
    """Return whether the row is known to be there."""
    entity_type, entity_id = entity
    server = world.server

    def insert() -> Steps[datetime]:
        row = MessageRow(
            UUID(int=world.scheduler.random.getrandbits(128)).hex,
            server.cluster.type_ids[entity_type.name],
            world.shard_of(entity_type.name, entity_id),
            entity_id,
            None,
            round(world.now * 1_000_000),  # its place is the time at which it is stored
            0,
            entity_type.name,
            entity_id,
            "take",
            entity_type.commands["take"].encode((token,), {}),
            delay=seconds_of(token) if is_timer else 0.0,
            key=f"?later:{token}" if is_timer else None,
        )
        return JournalWrites(server).messages.stage(MessageChanges([row]))

    connection = Connection(server, client, lock_seconds=LOCK_SECONDS)
    try:
        await connection.reach("stage", insert)
    except (ConnectionLost, MayNotEnd, ServerError):
        return False
    finally:
        connection.close()
    return True
