"""Closings: shards that move to another journal have no home while the last of their rows move.

      open ──the moving command closes it──> closed ──its home has stopped it──> without a home
        ^                                      no new home                           │
        └──────── the command opens it, or its closing has lapsed ───────────────────┘

Contract: a closed shard gets no home (`Placement.may_live`), and one that has a home is handed off.
The rows say which shards are closed. The database gives them no home either: a decision that was
made before its coordinator knew of a closing shows here, and the closings are read again. A shard
that was opened is placed by its row as it is then: its epoch has changed, if its journal has.
"""

from collections.abc import Iterable

from sharding_app.protocol.coordinator.handoff import HandOffs
from sharding_app.protocol.coordinator.outbox import Outbox
from sharding_app.protocol.coordinator.tables import Tables
from sharding_app.protocol.coordinator.timeline import ranges
from sharding_app.protocol.ids import ShardId
from sharding_app.protocol.records import ClosedShard, HomeChange, ShardRow


class Closings:
    def __init__(self, tables: Tables, outbox: Outbox, handoffs: HandOffs) -> None:
        self._tables = tables
        self._placement = tables.placement
        self._outbox = outbox
        self._handoffs = handoffs

    @property
    def busy(self) -> bool:
        """Whether a closed shard still has a home."""
        return any(self._placement.home_of(key) is not None for key in self._placement.closed)

    def opened(self, closed: Iterable[ClosedShard]) -> dict[str, list[ShardId]]:
        """Return by type the shards that are open again, if these are closed now: their rows are to
        be read.
        """
        now_closed = {(each.type, each.shard) for each in closed}
        opened: dict[str, list[ShardId]] = {}
        for type_name, shard in self._placement.closed:
            if (type_name, shard) not in now_closed:
                opened.setdefault(type_name, []).append(shard)
        return opened

    def read(self, closed: Iterable[ClosedShard], rows: Iterable[ShardRow]) -> None:
        """Take in all shards that are closed, and the rows of those that are open again."""
        self._placement.closed = {(each.type, each.shard): each.target for each in closed}
        for row in rows:
            if (row.type, row.shard) not in self._tables.writing:
                self._placement.adopt(row)

    def decided(self, changes: Iterable[HomeChange], rows: Iterable[ShardRow]) -> None:
        """Notice shards that the database has given no home, though their row was the expected one:
        they have been closed.
        """
        now_is = {(row.type, row.shard): row for row in rows}
        for change in changes:
            key = change.type, change.shard
            row = now_is.get(key)
            refused = row is not None and row.home is None and row.epoch == change.expected_epoch
            if refused and change.home is not None and key not in self._placement.closed:
                self._placement.closed[key] = ""
                self._outbox.read_closings()

    def lapsed(self, opened: Iterable[ClosedShard]) -> None:
        """Note shards that were opened since their closing was not renewed."""
        lines: dict[tuple[str, str], list[ShardId]] = {}
        for each in opened:
            lines.setdefault((each.type, each.target), []).append(each.shard)
        for (type_name, target), shards in lines.items():
            stopped = f"the command that moved them to journal {target!r} has stopped"
            self._outbox.note("shards_opened", type_name, f"{ranges(sorted(shards))}: {stopped}")

    def tick(self, now: float) -> None:
        """Hand off closed shards that have a home."""
        if self._placement.all_stops or not self._placement.closed:
            return
        homed = [key for key in self._placement.closed if self._placement.home_of(key) is not None]
        self._handoffs.begin([key for key in homed if key not in self._handoffs.active], now)
