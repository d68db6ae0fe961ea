"""Sets of numbered workers: each gets a home unasked, and a rescale stops all before any starts.

      in force ──another number is wanted──> stopping ──no shard has a home──> putting in force
         ^                                    hand-offs, no new homes                 │
         └──────────────────── the row has the new number ────────────────────────────┘

Contract: while the wanted number differs from that in force, no worker of the set gets a home
(`Placement.may_live`). The wanted number is put in force once the rows say that no worker has a
home, and nothing about them is being written: then all have stopped, and their dead homes are
buried. The steps follow from the rows alone, so that a new coordinator goes on with them.
"""

from collections.abc import Iterable

from sharding_app.protocol.allocation.workers import MOST_WORKERS
from sharding_app.protocol.coordinator.handoff import HandOffs
from sharding_app.protocol.coordinator.outbox import Outbox
from sharding_app.protocol.coordinator.tables import Tables
from sharding_app.protocol.ids import ShardKey
from sharding_app.protocol.records import NumberOfWorkers


class WorkerSets:
    def __init__(self, tables: Tables, outbox: Outbox, handoffs: HandOffs) -> None:
        self._tables = tables
        self._placement = tables.placement
        self._outbox = outbox
        self._handoffs = handoffs
        self._putting: dict[str, NumberOfWorkers] = {}
        "Sets whose wanted number is being written."

    @property
    def busy(self) -> bool:
        """Whether a set is being rescaled that a node hosts."""
        return any(
            each.rescaling and self._placement.is_hosted(each.type)
            for each in self._placement.workers.values()
        )

    def read(self, numbers: Iterable[NumberOfWorkers]) -> None:
        """Take in the rows of all sets."""
        self._placement.workers = {each.type: each for each in numbers}

    def missing(self) -> list[ShardKey]:
        """Return workers that have never had a home, and can have one now."""
        placement = self._placement
        if placement.all_stops:
            return []
        return [
            (name, number)
            for name, numbers in placement.workers.items()
            if not numbers.rescaling and placement.hosts_of(name)
            for number in range(numbers.workers)
            if (name, number) not in placement.rows
        ]

    def in_force(self, before: NumberOfWorkers, now_is: NumberOfWorkers | None) -> None:
        """Take in the row after `PutInForce`; None: it had changed since it was read."""
        self._putting.pop(before.type, None)
        if now_is is None:
            return
        self._placement.workers[now_is.type] = now_is
        self._outbox.note(
            "workers_rescaled",
            now_is.type,
            f"{before.workers} -> {now_is.workers}, revision {now_is.revision}",
        )

    def not_in_force(self, before: NumberOfWorkers) -> None:
        """Take in that the store was not reachable: it is tried again, unless it was written."""
        self._putting.pop(before.type, None)

    def tick(self, now: float) -> None:
        """Take the next step of each set that is being rescaled."""
        if self._placement.all_stops:
            return
        for each in self._placement.workers.values():
            if each.rescaling and each.type not in self._putting:
                self._stop(each, now)

    def _stop(self, numbers: NumberOfWorkers, now: float) -> None:
        keys = [(numbers.type, number) for number in range(MOST_WORKERS)]
        homed = [key for key in keys if self._placement.home_of(key) is not None]
        self._handoffs.begin([key for key in homed if key not in self._handoffs.active], now)
        if not homed and not any(key in self._tables.writing for key in keys):
            self._putting[numbers.type] = numbers
            self._outbox.put_in_force(numbers)
