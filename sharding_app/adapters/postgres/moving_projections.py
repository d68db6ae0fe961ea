"""Whether projections can follow shards of a type into another journal.

Contract: a projection has a position in each journal, and reads the changes of each in their order.
So it must have passed all changes of a shard in the one that the shard leaves, hold none of its
entities, be in no first fill, and have a position in the other one.
"""

from collections.abc import Callable, Sequence

from sharding_app.adapters.postgres.further_journals import Connection, rows
from sharding_app.adapters.postgres.sql import QUERIES
from sharding_app.protocol.ids import EntityId, ShardId
from sharding_app.protocol.whereabouts import Whereabouts

MOST_UNPASSED = 10_000
UNKNOWN = -1
"""The shard of an entity that no hash tells."""


class Followers:
    """The projections of one type. `cluster` and `source`: the databases that are asked."""

    def __init__(
        self, type_name: str, type_id: int, places: Whereabouts, cluster: Connection, source: Connection,
        from_journal: str, target: str, names: Callable[[str], str],
    ) -> None:  # fmt: skip
        self._type = type_name
        self._type_id = type_id
        self._places = places
        self._cluster = cluster
        self._source = source
        self._from = from_journal
        self._target = target
        self._names = names

    def unpassed(self, shards: Sequence[ShardId], *, closed: bool = True) -> str:
        """Return the reason why projections cannot follow the shards yet; empty: they can.
        `closed`: they must have passed all changes.
        """
        named = {"type_id": self._type_id, "source": self._from, "target": self._target}
        places: dict[tuple[str, int], set[str]] = {}
        for name, version, journal, fills, first, last, position in rows(
            self._cluster, "move_projections", named
        ):
            known = places.setdefault((name, version), set())
            if journal is None:
                continue
            known.add(journal)
            if fills:
                return f"The projection {name} (version {version}) reads {self._type} for the first time: wait until it has."
            if journal == self._from and closed:
                values = {
                    "type_id": self._type_id, "position": position, "first": first, "last": last,
                    "limit": MOST_UNPASSED,
                }  # fmt: skip
                unpassed = [entity for (entity,) in rows(self._source, "move_unpassed", values)]
                if len(unpassed) == MOST_UNPASSED or any(self._is_of(each, shards) for each in unpassed):
                    return (
                        f"The projection {name} (version {version}) has not handled all events of these shards: they move"
                        " once it has. Is it paused, or does no worker run it?"
                    )
        for (name, version), known in places.items():
            if missing := {self._from, self._target} - known:
                return (
                    f"The projection {name} (version {version}) does not follow {self._names(min(missing))} yet: its worker begins"
                    " with that by itself."
                )
        for name, version, entity, parked, caught_up in rows(self._cluster, "move_held", named):
            if not caught_up and self._is_of(entity, shards):
                todo = "retry it (manage.py sharding_projection)" if parked else "it is tried again by itself"
                return f"The entity {entity!r} waits in the projection {name} (version {version}): {todo}."
        return ""

    def let_go(self, shards: Sequence[ShardId]) -> None:
        """Forget which entities of shards have caught up after a failure, once all changes are
        passed.
        """
        named = {"type_id": self._type_id, "source": self._from}
        known = {each[2] for each in rows(self._cluster, "move_held", named) if each[4]}
        if entities := sorted(each for each in known if self._is_of(each, shards)):
            self._cluster.execute(QUERIES["move_caught_up"], {**named, "entities": entities})

    def _is_of(self, entity: EntityId, shards: Sequence[ShardId]) -> bool:
        """Tell whether an entity is one of these shards'. One that has no event may be."""
        shard = self._places.shard_of(entity, UNKNOWN)
        if shard == UNKNOWN:
            found = self._source.execute(
                "SELECT shard FROM sharding_event WHERE type_id = %s AND entity = %s LIMIT 1",
                [self._type_id, entity],
            ).fetchall()
            return not found or found[0][0] in shards
        return shard in shards
