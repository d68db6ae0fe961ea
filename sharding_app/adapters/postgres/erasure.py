"""Erases one entity whose home is dead: its events, snapshots and remembered id (erasure requests).

Contract: refuses while the shard's home is alive, since that may hold the entity in memory: the home erases it then
(`runtime.erasing`). It is asked before anything is locked. The shard's epoch is raised first, so that a process which was
frozen all the while cannot write any of it again, and each piece looks whether that epoch still holds: of every shard in which
the entity has left something, since it may begin to live in any of them. The timeline notes
the type, the numbers and who wanted it, never the id.
"""

from collections.abc import Callable
from typing import Any

import psycopg
from psycopg import sql

from sharding_app.adapters.postgres.line import Conninfo, command_parameters
from sharding_app.adapters.postgres.sql import QUERIES
from sharding_app.ports.journal import Erasure

EVENTS_AT_ONCE = 5_000


class HomeAlive(Exception):
    """A living node is the home of the entity's shard: nothing was erased."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__(f"still at home on {', '.join(names)}")
        self.names = names


class Moved(Exception):
    """The shard has been given a home while it was being erased: that home erases the rest."""


def count_entity(conninfo: Conninfo, type_name: str, entity: str) -> Erasure:
    """Count the rows of an entity in a transaction that only reads. Raises psycopg.Error."""
    params = {"type": type_name, "entity": entity}
    with psycopg.connect(**command_parameters(conninfo, "erasure")) as connection:
        connection.read_only = True
        row = connection.execute(QUERIES["erase_count"], params).fetchone()
    return Erasure() if row is None else Erasure(*row)


def erase_entity(
    conninfo: Conninfo,
    type_name: str,
    entity: str,
    by: str,
    progress: Callable[[Erasure], object] = bool,
    *,
    events_at_once: int = EVENTS_AT_ONCE,
) -> Erasure:
    """Erase an entity piece by piece, from its end. Raises HomeAlive, Moved, or psycopg.Error."""
    params: dict[str, Any] = {"type": type_name, "entity": entity, "by": by}
    with psycopg.connect(**command_parameters(conninfo, "erasure"), autocommit=True) as connection:
        shards = connection.execute(QUERIES["erase_find"], params).fetchall()
        if not shards:
            return Erasure()
        homes = [home for _, _, home in shards]
        alive = connection.execute(QUERIES["erase_homes"], {"homes": homes}).fetchall()
        if alive:
            raise HomeAlive(tuple(name for (name,) in alive))
        type_id = shards[0][0]
        seen = {"type_id": type_id, "shards": [shard for _, shard, _ in shards], "homes": homes}
        fenced = connection.execute(QUERIES["erase_fence"], {**params, **seen}).fetchall()
        if len(fenced) < len(shards):
            raise Moved
        raised = {
            "type_id": type_id,
            "shards": [each for each, _ in fenced],
            "epochs": [each for _, each in fenced],
        }
        shard, epoch = fenced[0]
        held = {**params, "type_id": type_id, "shard": shard, "epoch": epoch, "at_most": events_at_once}
        erased = Erasure(whole=False)
        while not erased.whole:
            with connection.transaction():
                whole = connection.execute(QUERIES["erase_held"], raised).fetchone()
                row = connection.execute(
                    QUERIES["erase"], {**held, "events_before": erased.events}
                ).fetchone()
                if row is None or whole != (True,):
                    raise Moved
            erased += Erasure(*row)
            progress(erased)
    return erased


def scrub_tables(conninfo: Conninfo) -> None:
    """Free the rows that were deleted, and let the planner's statistics forget them. Raises psycopg.Error."""
    with psycopg.connect(**command_parameters(conninfo, "erasure"), autocommit=True) as connection:
        for table in ("sharding_event", "sharding_snapshot", "sharding_remembered"):
            connection.execute(sql.SQL("VACUUM (ANALYZE) {}").format(sql.Identifier(table)))
