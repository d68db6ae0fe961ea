"""Resizes, step by step: one mistake at least for each step, from the choice of a group to its end.

A step in which a home would be left behind is refused by the store too, so that no seed shows a
coordinator that asks for it: tests/contract/test_resizing.py does.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sharding_app.adapters.memory.cluster_rows import ClusterRows
from sharding_app.adapters.memory.cluster_writes import ClusterWrites, Moving
from sharding_app.adapters.memory.steps import Steps
from sharding_app.protocol.coordinator.machine import Coordinator
from sharding_app.protocol.coordinator.resizing import Resizing
from sharding_app.protocol.ids import EntityId, ShardId, ShardKey
from sharding_app.protocol.numbering import Numbering
from sharding_app.protocol.records import ShardRow
from sharding_app.protocol.region import RegionRoutes
from sharding_app.runtime.hosting.type_host import TypeHost
from tests.simulation.mistakes.mistake import Mistake, no, nothing, yes

# -- A group is chosen and handed off --------------------------------------------------------------


class _NoHandOffs:
    active: Mapping[ShardKey, object] = {}

    def begin(self, keys: Iterable[ShardKey], now: float) -> None:
        return None


def _waits_for_shards_to_stop(real: Any) -> Any:
    def go_on(self: Any, name: str, numbering: Numbering, now: float) -> None:
        """Take a step once no shard of the group has a home, and hand off none."""
        handoffs, self._handoffs = self._handoffs, _NoHandOffs()
        try:
            real(self, name, numbering, now)
        finally:
            self._handoffs = handoffs

    return go_on


# -- The step is written ---------------------------------------------------------------------------


def _without(attribute: str) -> Callable[[Any], Any]:
    def make(real: Any) -> Any:
        def carry_out(self: Any) -> bool:
            setattr(self, attribute, [])
            return bool(real(self))

        return carry_out

    return make


def _from_the_first_epoch(real: Any) -> Any:
    def renumbered(self: Any, type_name: str, upto: int, epoch: int) -> list[ShardRow]:
        """Let the shards begin with the epoch of those that have never lived."""
        return list(real(self, type_name, upto, 1))

    return renumbered


def _under_any_term(real: Any) -> Any:
    def renumber(self: Any, *args: Any) -> Any:
        """Take a step without a look at the term."""
        return real(_OfAnyTerm(self._server), *args)

    return renumber


class _OfAnyTerm(ClusterWrites):
    def guard(self, term: int) -> Steps[None]:
        yield from ()


# -- The numbers are told --------------------------------------------------------------------------


def _with_the_same_revision(real: Any) -> Any:
    def after(self: Numbering, upto: int) -> Numbering:
        later: Numbering = real(self, upto)
        if not later.resizing:
            return later
        return Numbering(later.shards, later.wanted, later.done, self.revision)

    return after


# -- Regions file their calls anew -----------------------------------------------------------------


def _for_later_calls(real: Any) -> Any:
    def renumbered(
        self: Any, shard_of: Callable[[EntityId], ShardId], there: Callable[[ShardId], bool], now: float
    ) -> None:
        """Leave each call that waits where it is."""
        pending = self.pending
        self.pending = {request: each for request, each in pending.items() if each.home is not None}
        try:
            real(self, shard_of, there, now)
        finally:
            self.pending = pending

    return renumbered


# -- The next group, and the end -------------------------------------------------------------------


def _for_one_step(real: Any) -> Any:
    def renumbered(self: Any, type_name: str, before: Numbering, after: Numbering) -> None:
        """Count a step that is written as one that is being written."""
        real(self, type_name, before, after)
        if after.resizing:
            self._writing[type_name] = None

    return renumbered


def _without_end(_: Any) -> Any:
    def after(self: Numbering, upto: int) -> Numbering:
        return Numbering(self.shards, self.wanted, upto, self.revision + 1)

    return after


def _with_the_former_number(real: Any) -> Any:
    def after(self: Numbering, upto: int) -> Numbering:
        if upto < self.groups:
            return Numbering(self.shards, self.wanted, upto, self.revision + 1)
        return Numbering(self.shards, 0, 0, self.revision + 1)

    return after


def _merged_shards_stay(_: Any) -> Any:
    def renumbered(
        self: Any,
        type_name: str,
        before: Numbering,
        after: Numbering,
        rows: Sequence[ShardRow],
        now: float,
    ) -> None:
        """Go on to look after the rows of shards that there are no more."""
        self.resizing.renumbered(type_name, before, after)
        if after == before:
            return
        for row in rows:
            self.placement.adopt(row)
        self._refuse_no_shards()
        self._serve_waiters(now)

    return renumbered


# -- A new coordinator, and lost answers -----------------------------------------------------------


def _leaves_those_of_others(real: Any) -> Any:
    def read(self: Any, numbers: Mapping[str, Numbering]) -> None:
        """Go on with no resize that another coordinator was asked for."""
        known = self._placement.numbers
        own = dict(numbers)
        for name, each in numbers.items():
            if name not in known and each.resizing:
                own[name] = Numbering(each.shards, 0, 0, each.revision)
            elif name in known and known[name].revision == each.revision:
                own[name] = known[name]
        real(self, own)

    return read


def _sees_no_lost_step(_: Any) -> Any:
    def read(self: Any, numbers: Mapping[str, Numbering]) -> None:
        """Take in the numbers, and read no shards of a step whose answer was lost."""
        self._placement.numbers = dict(numbers)

    return read


def _gives_up(_: Any) -> Any:
    def not_renumbered(self: Any, type_name: str, now: float) -> None:
        """Try a step that was refused never again."""
        self._writing.pop(type_name, None)
        self._not_before[type_name] = float("inf")

    return not_renumbered


RESIZING: dict[str, Mistake] = {
    "closed_groups_get_homes": Mistake((10, 14), Numbering, "closed", lambda _: no),
    "groups_are_not_handed_off": Mistake((10,), Resizing, "_go_on", _waits_for_shards_to_stop),
    "rows_stay_behind": Mistake((0, 10, 15, 16), Moving, "carry_out", lambda _: yes),
    "remembered_ids_stay_behind": Mistake((0, 10), Moving, "carry_out", _without("marked")),
    "messages_stay_behind": Mistake((15, 16), Moving, "carry_out", _without("messages")),
    "resized_shards_begin_anew": Mistake((1, 2), ClusterRows, "renumbered", _from_the_first_epoch),
    "former_coordinators_resize": Mistake((7,), ClusterWrites, "renumber", _under_any_term),
    "steps_keep_the_revision": Mistake((2, 8, 10), Numbering, "after", _with_the_same_revision),
    "outdated_callers_are_not_told": Mistake((8, 10), Resizing, "tell", lambda _: nothing),
    "callers_learn_no_numbers": Mistake((2, 8, 10), RegionRoutes, "renumbered", lambda _: nothing),
    "waiting_calls_stay_behind": Mistake((8, 10), RegionRoutes, "renumbered", _for_later_calls),
    "astray_calls_are_forgotten": Mistake((5, 8), RegionRoutes, "_await_astray", lambda _: nothing),
    "homes_take_entities_of_others": Mistake((2,), TypeHost, "_sent_elsewhere", lambda _: no),
    "resizes_stop_after_a_step": Mistake((10,), Resizing, "renumbered", _for_one_step),
    "resizes_never_end": Mistake((10,), Numbering, "after", _without_end),
    "resizes_end_as_they_began": Mistake((0, 2, 10, 14), Numbering, "after", _with_the_former_number),
    "merged_shards_live_on": Mistake((10, 14), Coordinator, "renumbered", _merged_shards_stay),
    "resizes_end_with_their_coordinator": Mistake((10,), Resizing, "read", _leaves_those_of_others),
    "lost_steps_are_not_looked_for": Mistake((10,), Resizing, "read", _sees_no_lost_step),
    "refused_steps_are_given_up": Mistake((10,), Resizing, "not_renumbered", _gives_up),
}
