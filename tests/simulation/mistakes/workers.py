"""Numbered workers: two sets, too many of one, none."""

from typing import Any

from sharding_app.protocol.coordinator.worker_sets import WorkerSets
from sharding_app.protocol.records import NumberOfWorkers
from sharding_app.runtime.hosting.workers import RUN, WorkerRuns
from sharding_app.runtime.journal.commits import Resident, ResidentShard
from tests.simulation.mistakes.mistake import Mistake


def _waits_for_no_worker(real: Any) -> Any:
    def stop(self: Any, numbers: NumberOfWorkers, now: float) -> None:
        real(self, numbers, now)
        if numbers.type not in self._putting:
            self._putting[numbers.type] = numbers
            self._outbox.put_in_force(numbers)

    return stop


def _starts_once(real: Any) -> Any:
    known: set[tuple[str, int]] = set()

    def begin(self: Any, shard: ResidentShard) -> None:
        """Start a worker at its first home alone. The next world begins with no epochs."""
        if shard.epoch == 1:
            known.discard((shard.type, shard.number))
        if (shard.type, shard.number) not in known:
            known.add((shard.type, shard.number))
            real(self, shard)

    return begin


def _is_not_waited_for(real: Any) -> Any:
    def loaded(self: Any, slot: Resident) -> None:
        real(self, slot)
        if slot.pending:
            slot.shard.settled(slot)

    return loaded


def _whatever_its_lease_is(_: Any) -> Any:
    def may_go_on(self: Any, run: Any) -> bool:
        self._watch.running = self._host.type.name, RUN
        return True

    return may_go_on


WORKERS: dict[str, Mistake] = {
    "two_sets_of_workers": Mistake((0,), WorkerSets, "_stop", _waits_for_no_worker),
    "workers_start_once": Mistake((10,), WorkerRuns, "begin", _starts_once),
    "workers_are_not_waited_for": Mistake((2,), WorkerRuns, "loaded", _is_not_waited_for),
    "workers_need_no_lease": Mistake((2,), WorkerRuns, "_may_go_on", _whatever_its_lease_is),
}
