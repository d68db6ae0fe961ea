"""Closings of shards that move to another journal: a mistake for each step, from the closing to the
lapse.

A coordinator that does not read the rows of opened shards again is found by no seed: its decision
is refused for its epoch, and the answer shows the row.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from sharding_app.adapters.memory.cluster_rows import ClusterRows
from sharding_app.adapters.memory.cluster_writes import ClusterWrites
from sharding_app.adapters.memory.steps import Pause, Steps
from sharding_app.protocol.coordinator.closings import Closings
from sharding_app.protocol.ids import ShardId
from sharding_app.protocol.records import ClosedShard, HomeChange, ShardRow
from sharding_app.runtime.coordinator_shell import CoordinatorShell
from tests.simulation.mistakes.mistake import Mistake, async_nothing, nothing


def _whatever_is_closed(_: Any) -> Any:
    def permitted(self: Any, change: HomeChange) -> HomeChange:
        """Give a home to a shard that was closed since the coordinator has looked."""
        return change

    return permitted


def _without_rows(_: Any) -> Any:
    def close_shards(
        self: Any, type_id: int, shards: Sequence[ShardId], seconds: float
    ) -> Steps[list[ShardId]]:
        """Close shards while a decision about them is under way."""
        name = self._name_of(type_id)
        yield Pause.COMMIT
        found: list[ShardId] = self._rows.at_step(name, shards, "copying")
        self._rows.close_until(name, found, self._server.now() + seconds)
        self._rows.count_closing(name)
        return found

    return close_shards


def _for_ever(real: Any) -> Any:
    def read(self: Any, closed: Iterable[ClosedShard], rows: Iterable[ShardRow]) -> None:
        """Take shards for closed that were closed once."""
        before = self._placement.closed
        real(self, closed, rows)
        self._placement.closed = before | self._placement.closed

    return read


def _is_not_told(_: Any) -> Any:
    def told_numbers(self: Any, numbers: int) -> None:
        """Compare the revisions alone."""
        if self._loaded and numbers < sum(each.revision for each in self.machine.placement.numbers.values()):
            self._types_of = None
            self.look_now()

    return told_numbers


CLOSINGS: dict[str, Mistake] = {
    "closed_shards_get_homes": Mistake((1,), ClusterRows, "permitted", _whatever_is_closed),
    "closings_hold_no_rows": Mistake((1,), ClusterWrites, "close_shards", _without_rows),
    "closed_shards_are_not_handed_off": Mistake((10,), Closings, "tick", lambda _: nothing),
    "closings_are_not_noticed": Mistake((10,), CoordinatorShell, "told_numbers", _is_not_told),
    "closings_are_not_read": Mistake((10,), CoordinatorShell, "_read_closings", lambda _: async_nothing),
    "closings_never_lapse": Mistake((10,), CoordinatorShell, "_open_lapsed", lambda _: async_nothing),
    "opened_shards_stay_closed": Mistake((8, 10), Closings, "read", _for_ever),
}
