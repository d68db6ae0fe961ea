"""The judge of entities that keep their state in memory alone (`in_memory`).

Each object is a *life*, which begins when the object is made. The judge hears of each token that an
object notes, in the moment when it does, so it knows the state of every object at every time. From
that it judges:

* A command is handled at most once, unless its caller gave it an id (promise 5).
* Commands of one caller are handled in the order of its calls, by whatever object (promise 5).
* An answer is the state of an object at some time between call and answer (promise 2).
* A command whose caller was told that nothing came of it is not handled, neither before nor later
  (promise 3).

A node that the server has let go unheard may handle commands beside its successor (`overlaps`).
What it handles then has no place in the order.

A failover may lose that a shard moved. Then its former home is the home again, and the objects that
it still has go on.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, cast

from sharding_app.testing.simulation import promises
from sharding_app.testing.simulation.promises import Call, PromiseBroken

if TYPE_CHECKING:
    from sharding_app.entities.base import Entity
    from sharding_app.protocol.ids import Epoch, Incarnation
    from sharding_app.testing.simulation.workload import Book
    from sharding_app.testing.simulation.world import World

MEMORY = "in memory"
TRANSITIONS = (
    (MEMORY, "lives", "lives again"),
    (MEMORY, "lives", "lives through a failover"),
    (MEMORY, "under way", "not sent again"),
    (MEMORY, "row is lost", "stored again"),
)


class Life:
    """An object of an entity."""

    __slots__ = ("apart", "ended", "home", "notes", "outlives", "regains")

    def __init__(self, token: str) -> None:
        self.notes: list[tuple[str, float]] = [(token, float("-inf"))]
        "The tokens that it has noted, and when. A repeated command may have noted one twice."
        self.ended = float("inf")
        "When the next object has begun to handle something."
        self.apart = False
        "Its node was let go unheard."
        self.outlives = False
        "It was there when the server went back in time."
        self.home: tuple[Incarnation, Epoch] | None = None
        "Where it has handled something."
        self.regains = False
        "The server has lost that its shard moved away from its home."

    def shows(self, seen: int, last: str) -> bool:
        """Whether it has had that many notes, and `last` is the last one of them."""
        return seen <= len(self.notes) and self.notes[seen - 1][0] == last

    def over(self, seen: int) -> float:
        """Return when it had more notes than these, or was no more."""
        return self.ended if seen == len(self.notes) else self.notes[seen][1]


class MemoryChecker:
    def __init__(self, world: World) -> None:
        self._world = world
        self._lives: dict[str, list[Life]] = {}
        "By entity, those that have handled something: in the order in which they began to."
        self._made: dict[str, Life] = {}
        "By its first token."
        self._noted: dict[str, dict[str, None]] = {}
        "By entity: the tokens that any object has noted."
        self._last: dict[tuple[str, str], int] = {}
        "By entity and client: number of the last call that was handled."
        self._untouched: dict[str, Call] = {}
        "Calls that have failed, of which nothing may come, by their tokens."

    # -- From the entities -------------------------------------------------------------------------

    def life_begins(self, entity: Entity) -> str:
        """Note that an object is made. Return its first token."""
        token = f"life {len(self._made) + 1}"
        self._made[token] = Life(token)
        return token

    def handles(self, entity: Entity, home: tuple[Incarnation, Epoch], *, apart: bool, heard: bool) -> None:
        """Note that an object begins to handle something. `heard`: its node knows the lineage."""
        life = self._made[_first(entity)]
        lives = self._lives.setdefault(_name(entity), [])
        life.home = home
        life.apart = life.apart or apart
        if life.regains and heard:
            life.regains = False
            life.ended = float("inf")
            lives.remove(life)
        if life.outlives and heard:
            life.outlives = False
            self._world.transition(MEMORY, "lives", "lives through a failover")
        if life in lives:
            return
        if lives:
            self._world.transition(MEMORY, "lives", "lives again")
        if not apart:
            for each in lives:
                each.ended = min(each.ended, self._world.now)
        lives.append(life)

    def notes(self, entity: Entity, token: str) -> None:
        """Check a token in the moment when an object has noted it."""
        try:
            self._notes(entity, token)
        except PromiseBroken as error:
            self._world.broke(error)

    def _notes(self, entity: Entity, token: str) -> None:
        name = _name(entity)
        life = self._made[_first(entity)]
        noted = self._noted.setdefault(name, {})
        known = token in noted
        call = self._world.witness.by_token.get(token)
        life.notes.append((token, self._world.now))
        noted[token] = None
        if token in self._untouched:
            detail = f"{token!r} is handled, and its caller was told {self._untouched[token].error!r}"
            raise PromiseBroken(3, "failed_is_not_stored", detail, name)
        ordered = call is not None and call.is_ordered
        if known and ordered:
            raise PromiseBroken(5, "effect_once", f"{token!r} is handled twice", name)
        if call is None or not ordered or life.apart:
            return
        key = name, call.client
        if call.number < self._last.get(key, -1):
            detail = f"call {call.client}#{call.number} is handled after its later call #{self._last[key]}"
            raise PromiseBroken(5, "order_is_kept", detail, name)
        self._last[key] = call.number

    def went_back(self) -> None:
        """Note that the server has gone back in time: objects in memory stay."""
        for name, lives in self._lives.items():
            lives[-1].outlives = True
            there = [life for life in lives if life.home == self._home_by_the_rows(name)]
            for life in lives:
                life.regains = life in there[-1:] and life is not lives[-1]

    # -- From clients ------------------------------------------------------------------------------

    def answered(self, call: Call) -> None:
        """Check the answer to a call."""
        if call.command == "set_clock":
            self._world.witness.messages.is_stored(str(call.value), call.began)
        elif call.tokens:
            self._was_noted(call)
        elif isinstance(call.value, tuple | list):
            self._was_a_state(call)

    def failed(self, call: Call) -> None:
        """Check the error of a call."""
        if getattr(call.error, "code", "") == "fate_unknown":
            self._world.transition(MEMORY, "under way", "not sent again")
        if call.says == "nothing":
            promises.error_says_what_is_stored(call, self._noted.get(call.entity, {}))
            self._untouched.update(dict.fromkeys(call.tokens, call))

    def has_noted(self, call: Call) -> bool:
        """Whether an object has handled a command."""
        return all(token in self._noted.get(call.entity, {}) for token in call.given)

    def all_noted(self) -> Iterator[str]:
        """Return the tokens that any object has noted."""
        return chain.from_iterable(self._noted.values())

    # -- Inside ------------------------------------------------------------------------------------

    def _home_by_the_rows(self, name: str) -> tuple[Incarnation, Epoch] | None:
        made, _, entity = name.partition("/")
        row = self._world.server.cluster.shards.get((made, self._world.shard_of(made, entity)))
        return None if row is None or row.home is None else (row.home, row.epoch)

    def _was_noted(self, call: Call) -> None:
        noted = self._noted.get(call.entity, {})
        for token in call.tokens:
            if token not in noted:
                detail = f"{token!r} was acknowledged, and no object has noted it"
                raise PromiseBroken(3, "acknowledged_is_stored", detail, call.entity)
        last, place = call.tokens[-1], cast(int, call.value)
        if not any(life.shows(place, last) for life in self._lives[call.entity]):
            detail = f"{call.command} answered {place!r}, which is no place of its token"
            raise PromiseBroken(4, "state_is_the_fold", detail, call.entity)

    def _was_a_state(self, call: Call) -> None:
        seen, last = cast(tuple[int, str], call.value)
        lives = [life for life in self._lives.get(call.entity, ()) if life.shows(seen, last)]
        if not lives:
            detail = f"{call.command} saw {seen} tokens, the last {last!r}, which no object had"
            raise PromiseBroken(2, "reads_are_linearizable", detail, call.entity)
        if not any(life.apart or life.over(seen) >= call.began for life in lives):
            over = max(life.over(seen) for life in lives)
            detail = f"{call.command} saw {last!r}, which was over at {over:.4f}, before its call"
            raise PromiseBroken(2, "reads_are_linearizable", detail, call.entity)


def _name(entity: Entity) -> str:
    made = type(entity)._sharding_type
    return "" if made is None else f"{made.name}/{entity.entity_id}"


def _first(entity: Entity) -> str:
    return cast("Book", entity).tokens[0]
