"""Moves of rows to another journal: a mistake for each step, from the first copy to the deletion of
what was left behind.

Some guards stand twice, so that no seed shows one of them alone. A source that is not fenced is
seen by the step that takes out its messages. Notes that go before their copy is made are seen by
the comparison.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sharding_app.adapters.memory import moving
from sharding_app.adapters.memory.cluster_rows import ClusterRows
from sharding_app.adapters.memory.message_rows import MessageRows
from sharding_app.adapters.memory.move_rows import Watching
from sharding_app.adapters.memory.moving import LeftCopies, MemoryMover, Rest
from sharding_app.adapters.memory.projecting import _Own
from sharding_app.adapters.memory.steps import Pause, Steps
from sharding_app.protocol.ids import EntityId, Epoch, ShardId
from sharding_app.protocol.moving import Applied, Apply, Asking, Course, Move, PutRest, Switch
from sharding_app.protocol.records import ShardRow
from sharding_app.runtime.hosting.node_host import NodeHost
from tests.simulation.mistakes.mistake import Mistake, nothing

# -- The copy --------------------------------------------------------------------------------------


def _beside_the_former_ones(real: Any) -> Any:
    def put(self: Any, rows: Any, tables: Any = ("event", "snapshot")) -> Steps[None]:
        """Leave rows in the target that are gone from the source."""
        replace = moving._replace

        def add(table: Any, key: Any, first: int, last: int, new: Mapping[int, Any]) -> list[int]:
            for seq in new or ():
                replace(table, key, seq, seq, {seq: new[seq]})
            return []

        moving._replace = add
        try:
            yield from real(self, rows, tables)
        finally:
            moving._replace = replace

    return put


def _without_a_comparison(_: Any) -> Any:
    async def compare(self: Any) -> None:
        """Take the copy for right."""

    return compare


def _alone_by_its_own_word(_: Any) -> Any:
    def locked(self: Any, place: str, key: int) -> bool:
        return True

    return locked


# -- The rest, the fence and the switch ------------------------------------------------------------


def _before_the_fence(_: Any) -> Any:
    def fence(self: Any, shards: Sequence[ShardId]) -> Asking:
        """Copy the rest, and only then keep former homes from writing."""
        self.__dict__.pop("_ask", None)
        while (yield from self._ask(Apply())).is_full:
            pass
        raised = yield from _fence(self, shards)
        self._ask = _Deaf(self._ask, Apply, Applied(0, is_full=False))
        return raised

    return fence


_fence = Move._fence


class _Deaf:
    """Asks for all but one kind of request."""

    def __init__(self, real: Any, kind: type, answer: Any) -> None:
        self._real, self._kind, self._answer = real, kind, answer

    def __call__(self, request: Any) -> Asking:
        if isinstance(request, self._kind):
            return self._answer
        return (yield from self._real(request))


def _without_the_rest(_: Any) -> Any:
    def fence(self: Any, shards: Sequence[ShardId]) -> Asking:
        """Switch without what was written since the last look at the notes."""
        self.__dict__.pop("_ask", None)
        raised = yield from _fence(self, shards)
        self._ask = _Deaf(self._ask, Apply, Applied(0, is_full=False))
        return raised

    return fence


def _without(*fields: str) -> Callable[[Any], Any]:
    def make(real: Any) -> Any:
        def rest(self: Any, shards: Sequence[ShardId], *, stashed: bool = False) -> Rest:
            found: Rest = real(self, shards, stashed=stashed)
            return found._replace(**{each: type(getattr(found, each))() for each in fields})

        return rest

    return make


def _as_they_are(_: Any) -> Any:
    def settled(self: Any, shards: Sequence[ShardId], rest: Rest) -> list[str]:
        """Look at no mark of a message that comes along."""
        return []

    return settled


def _left_in_the_table(_: Any) -> Any:
    def switch(self: Any, shards: Sequence[ShardId], raised: Mapping[ShardId, Epoch]) -> Course:
        """Take no message out of the source."""
        yield from self._ask(PutRest(shards, stashed=False))
        yield from self._keep_closed(shards)
        yield from self._ask(Switch(raised))

    return switch


def _whatever_has_happened(_: Any) -> Any:
    def say_so(self: Any, raised: Mapping[ShardId, Epoch]) -> Steps[int]:
        """Switch shards that were opened, and live in the source again."""
        yield Pause.COMMIT
        rows = self._cluster.cluster
        there = [each for each in sorted(raised) if (self._name, each) in rows.moves]
        rows.switch(self._name, there, self.wanted.target)
        return len(raised)

    return say_so


def _at_once(_: Any) -> Any:
    def unpassed(self: Any, shards: Sequence[ShardId], *, closed: bool = True) -> str:
        return ""

    return unpassed


# -- Messages that were taken out ------------------------------------------------------------------


def _stays_out(_: Any) -> Any:
    def unstash(
        self: Any, type_id: int, shards: Iterable[ShardId], epochs: Mapping[tuple[int, ShardId], int]
    ) -> None:
        """Put no message back."""

    return unstash


def _counts_as_gone(real: Any) -> Any:
    def standing(self: Any, messages: Any, now: Any, *, for_marks: bool = False) -> Any:
        return real(self, messages, now)

    return standing


# -- What is left behind ---------------------------------------------------------------------------


def _all_that_is_there(_: Any) -> Any:
    def lying(self: Any, type_id: int) -> Callable[[EntityId], bool]:
        return lambda _: True

    return lying


def _passes_over(_: Any) -> Any:
    async def erase(self: Any, entity: EntityId) -> None:
        """Erase where the entity lies, and nowhere else."""

    return erase


def _says_nothing(_: Any) -> Any:
    def left(self: Any, gone: Mapping[ShardId, tuple[str, Epoch]]) -> Steps[None]:
        yield Pause.COMMIT

    return left


def _those_that_have_left(real: Any) -> Any:
    def take(
        self: Any, type_name: str, type_id: int, shards: Mapping[ShardId, Epoch], home: str
    ) -> list[ShardId]:
        """Take shards that have moved to another journal."""
        for each in shards:
            self.left.pop((type_id, each), None)
        found: list[ShardId] = real(self, type_name, type_id, shards, home)
        return found

    return take


def _nowhere_else(_: Any) -> Any:
    async def elsewhere(self: Any, shards: Sequence[ShardId]) -> list[ShardId]:
        """Ask no journal where the shards lie."""
        return []

    return elsewhere


def _where_the_former_one_says(real: Any) -> Any:
    async def start_in(
        self: NodeHost, part: Any, source: Any, message: Any, rows: Sequence[ShardRow], resumed: int
    ) -> None:
        """Start shards that have left the journal of their rows in that of the cluster."""
        await real(self, part, source, message, rows, resumed)
        left = {row: True for row in rows if part.has_left(row.type, row.shard, row.epoch)}
        self._start(self.hosts[message.type], left)
        self._say_started(source, message, {row.shard: row.epoch for row in left})

    return start_in


MOVES: dict[str, Mistake] = {
    "changes_beside_a_copy_are_not_noted": Mistake((3, 10), Watching, "note", lambda _: nothing),
    "deleted_rows_come_along": Mistake((3, 10), MemoryMover, "_put", _beside_the_former_ones),
    "copies_are_not_compared": Mistake((3, 4), MemoryMover, "_compare", _without_a_comparison),
    "two_moves_at_a_time": Mistake((3,), MemoryMover, "_locked", _alone_by_its_own_word),
    "the_rest_is_copied_before_the_fence": Mistake((3,), Move, "_fence", _before_the_fence),
    "the_rest_is_not_copied": Mistake((3,), Move, "_fence", _without_the_rest),
    "messages_do_not_move": Mistake((3, 15), MemoryMover, "_rest", _without("messages")),
    "remembered_ids_do_not_move": Mistake((0, 3, 10), MemoryMover, "_rest", _without("remembered")),
    "marks_do_not_move": Mistake((5, 15), MemoryMover, "_rest", _without("marks")),
    "messages_come_that_have_taken_effect": Mistake((5, 15), MemoryMover, "_settled", _as_they_are),
    "messages_stay_in_the_former_journal": Mistake((15,), Move, "_switch", _left_in_the_table),
    "opened_shards_are_switched": Mistake((1, 2, 3), MemoryMover, "_say_so", _whatever_has_happened),
    "projections_are_left_behind": Mistake((17,), MemoryMover, "unpassed", _at_once),
    "messages_that_were_taken_out_stay_out": Mistake((15, 16), MessageRows, "unstash", _stays_out),
    "marks_of_what_was_taken_out_go": Mistake((5, 15), MessageRows, "standing", _counts_as_gone),
    "fills_read_copies": Mistake((17,), _Own, "_lying", _all_that_is_there),
    "erasures_pass_over_copies": Mistake((4,), LeftCopies, "erase", _passes_over),
    "shards_that_have_left_are_taken": Mistake((1,), ClusterRows, "take", _those_that_have_left),
    "shards_that_have_left_begin_elsewhere": Mistake((1,), NodeHost, "_start_in", _where_the_former_one_says),
    "lost_moves_are_gone_on_with": Mistake((15,), MemoryMover, "_elsewhere", _nowhere_else),
    "former_journals_do_not_say_so": Mistake((10,), MemoryMover, "_left", _says_nothing),
}
