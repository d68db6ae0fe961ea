"""Erases one entity: its events, snapshots and remembered id, in one transaction (erasure requests).

Contract: refuses while the shard's home is alive, since that may hold the entity in memory. The shard's epoch is raised,
so that a process which was frozen all the while cannot write any of it again. The timeline notes the type and the
numbers, never the id.
"""

from typing import Any

import msgspec
import psycopg

from sharding_app.adapters.postgres.line import Conninfo, command_parameters
from sharding_app.adapters.postgres.sql import QUERIES


class HomeAlive(Exception):
    """A living node is the home of the entity's shard: nothing was erased."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__(f"still at home on {', '.join(names)}")
        self.names = names


class Erased(msgspec.Struct, frozen=True):
    """How many of each were erased."""

    events: int = 0
    snapshots: int = 0
    remembered: int = 0

    @property
    def anything(self) -> bool:
        return self != Erased()


def erase_entity(conninfo: Conninfo, type_name: str, entity: str, *, dry_run: bool = False) -> Erased:
    """Erase all that is stored of an entity. Raises HomeAlive, or psycopg.Error."""
    params: dict[str, Any] = {"type": type_name, "entity": entity}
    with (
        psycopg.connect(**command_parameters(conninfo, "erasure")) as connection,
        connection.transaction(force_rollback=dry_run),
    ):
        shards = connection.execute(QUERIES["erase_shards"], params).fetchall()
        homes = [home for _, _, home in shards if home is not None]
        alive = connection.execute(QUERIES["erase_homes"], {"homes": homes}).fetchall()
        if alive and not dry_run:
            raise HomeAlive(tuple(name for (name,) in alive))
        if not shards:
            return Erased()
        fenced = {"type_id": shards[0][0], "shards": [shard for _, shard, _ in shards]}
        shard, epoch = _one(connection.execute(QUERIES["erase_fence"], fenced))
        holder = {"type_id": shards[0][0], "shard": shard, "epoch": epoch, "entity": entity}
        return Erased(*_one(connection.execute(QUERIES["erase"], holder)))


def _one(cursor: psycopg.Cursor[tuple[Any, ...]]) -> tuple[Any, ...]:
    row = cursor.fetchone()
    if row is None:
        raise psycopg.OperationalError("the server did not say what it erased")
    return row
