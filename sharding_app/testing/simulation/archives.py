"""Archives of whole entities, in some seeds: the files of an operator, and the judge of what goes.

A file has what the judge knows of the entity at the moment when its mark is read. What leaves the
journal later has to be in a file, all of it and no more, and nothing of the entity stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sharding_app.testing.simulation.promises import PromiseBroken

if TYPE_CHECKING:
    from sharding_app.testing.simulation.world import World

SEEDS = (27, 28, 39, 44)
"""Of 48 seeds those with archives."""


class Archives:
    def __init__(self, world: World) -> None:
        self._world = world
        self._files: dict[str, list[tuple[str, ...]]] = {}
        "The tokens of each entity's events, as every closed file has them."

    @property
    def are_there(self) -> bool:
        return self._world.seed % 48 in SEEDS

    def write(self, type_name: str, entity: str) -> str:
        """Write an entity to a file. Return its mark; empty: it has stored nothing."""
        type_id = self._world.server.cluster.type_ids[type_name]
        self._files.setdefault(f"{type_name}/{entity}", []).append(self._events(f"{type_name}/{entity}"))
        number = self._world.shard_of(type_name, entity)
        return self._world.server_of(type_name, number).journal.mark(type_id, number, entity)

    def removed(self, type_id: int, entity: str) -> None:
        """Check promise 4 in the moment in which an entity leaves the journal."""
        type_name = self._world.witness.name_of(type_id)
        name = f"{type_name}/{entity}"
        gone = self._events(name)
        if gone not in self._files.get(name, ()):
            detail = f"{len(gone)} events went, and no file has just these"
            raise PromiseBroken(4, "archives_are_whole", detail, name)
        number = self._world.shard_of(type_name, entity)
        if left := self._world.server_of(type_name, number).journal.mark(type_id, number, entity):
            raise PromiseBroken(4, "archives_are_whole", f"{left} is left of it", name)
        self._world.transition("entity", "stored", "archived")

    def _events(self, name: str) -> tuple[str, ...]:
        return tuple(each.token for each in self._world.witness.journal.get(name, ()))
