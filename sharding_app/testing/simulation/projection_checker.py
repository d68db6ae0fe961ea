"""The judge of projections (promise 17).

It knows every event that was ever committed, hears of each turn at the moment of its commit, and
reads the rows that handlers have written. From that it judges:

* The rows of an entity are its events, each once, in the order of their numbers. None is left out
  but what an operator has skipped, and none was never committed.
* No position has a transaction behind it that has not ended.
* Turns of one slice come one after the other: each moves what the one before it has written.
* A version that takes its former one's place has all events that were there when its fill began,
  but for entities that wait after a failure.
* A paused version takes no turn.
* When all is calm, the rows are the journal, of all entities that were not erased, and soon after a
  commit.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Iterable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING
from zlib import crc32

from sharding_app.adapters.memory.journal_rows import Committed
from sharding_app.adapters.memory.projection_rows import key_of
from sharding_app.ports.journal import EventRow
from sharding_app.protocol.projection.requests import Key, Position, StoredEvent
from sharding_app.protocol.projection.turn import Outcome
from sharding_app.testing.simulation.move_seeds import has_moves
from sharding_app.testing.simulation.projections import FIRST, LATEST, SECOND, SEEDS, Row
from sharding_app.testing.simulation.promises import PromiseBroken

if TYPE_CHECKING:
    from sharding_app.testing.simulation.world import World

FAILS_IN = 25
"""The handler fails at one event of this number."""
FOR_GOOD = 5
"""This number of times or fewer. Some of these are parked, and an operator has to help."""


class ProjectionChecker:
    def __init__(self, world: World) -> None:
        self._world = world
        self._tables = world.server.projections
        self._refused: dict[str, int] = {}
        "Versions that a journal refuses to go on with, and how often they had begun then."
        self.deployed_at = Random(f"deployed {world.seed}").random() * LATEST
        "When the second version is there."
        self.closed: dict[Key, None] = {}
        "Entities at whose events the handler fails."
        self.events = 0
        self._ever: dict[Key, dict[tuple[int, bytes], None]] = {}
        "All that was ever committed."
        self._failures: dict[tuple[str, bytes], int] = {}
        "How often the handler still fails at an event."
        self._skipped: dict[tuple[str, Key, int], None] = {}
        self._wanted: dict[tuple[str, int], dict[Key, int]] = {}
        "By version and beginning: the last event of each entity when the fill began."
        self._known: dict[str, dict[int, Position]] = {}
        "By version and journal: the position of each slice, as written last."
        self._is_live: dict[str, None] = {}
        self._is_well = False
        "All handlers are right from now on."
        self._behind: list[str] | None = None

    @property
    def are_there(self) -> bool:
        return self._world.seed % 24 in SEEDS

    # -- From the journal --------------------------------------------------------------------------

    def committed(self, rows: Sequence[EventRow]) -> None:
        """Take in a batch that is committed now."""
        if self.are_there:
            self._behind = None
            for row in rows:
                self._ever.setdefault((row.type_id, row.entity), {})[row.seq, row.payload] = None

    def erased(self, key: Key) -> None:
        self._behind = None
        for wanted in self._wanted.values():
            wanted.pop(key, None)

    def went_back(self) -> None:
        """Go on from what the server has now: rows and positions have gone back together."""
        if not self.are_there:
            return
        self._behind = None
        self._known.clear()
        self._is_live = dict(self._tables.live)
        events = self._stored()
        for wanted in self._wanted.values():
            for key, number in list(wanted.items()):
                wanted[key] = min(number, max(events.get(key, ()), default=0))
        for name in self._tables.rows:
            self._compare(name, self._ever)

    # -- From the parts ----------------------------------------------------------------------------

    def fails(self, name: str, event: StoredEvent) -> bool:
        """Tell whether the handler fails at this event now."""
        if event.key in self.closed:
            return True
        if self._is_well:
            return False
        number = crc32(event.payload + name.encode())
        left = self._failures.get((name, event.payload))
        if left is None:
            left = 1 + number // FAILS_IN % FOR_GOOD if not number % FAILS_IN else 0
        self._failures[name, event.payload] = max(0, left - 1)
        if left:
            self._world.transition("projection", "runs", "has failed")
        return left > 0

    def begins(self, name: str, types: Collection[int]) -> None:
        """Note the events that exist when a version is made known."""
        if name not in self._tables.types:
            self._note_wanted(name, self._tables.beginnings.get(name, 0) + 1, types)

    def turned(
        self,
        name: str,
        journal: str,
        slices: tuple[int, int],
        touched: Collection[Key],
        outcome: Outcome,
        *,
        was_paused: bool,
    ) -> None:
        """Judge a turn that commits now."""
        self._behind = None
        self.events += outcome.events
        if was_paused and outcome.events and name in self._tables.paused:
            self._broke("paused_is_paused", f"{name} handles {outcome.events} events")
        self._judge_positions(name, journal, slices)
        if touched:
            self._compare(name, touched)
        done = "waits" if outcome.paused else "fills" if outcome.filling else "follows"
        self._world.transition("projection", "takes a turn", done)
        if journal:
            self._world.transition("projection", "takes a turn in a further journal", done)

    def refuses(self, name: str) -> None:
        """Note that a further journal refuses a version: transactions were lost, there or here."""
        self._refused[name] = self._tables.beginnings[name]
        self._world.transition("projection", "follows", "is refused")

    def tidied(self, name: str) -> None:
        """Judge a version that has just taken the place of the former one."""
        if name in self._is_live or name not in self._tables.live:
            return
        self._is_live[name] = None
        self._world.transition("projection", "fills", "is live")
        last = {key: number for key, number, _ in self._tables.rows[name]}
        waits = {key for place, key in self._tables.held if place.partition("\0")[0] == name}
        for key, wanted in self._wanted[name, self._tables.beginnings[name]].items():
            found = self._behind_skipped(name, key, last.get(key, 0) + 1) - 1
            if found < wanted and key not in waits:
                self._broke("live_when_complete", f"{name} is live with {found} of {wanted} events", key)

    def _behind_skipped(self, name: str, key: Key, number: int) -> int:
        """Return that number, or the next one that an operator has not skipped."""
        while (name, key, number) in self._skipped:
            number += 1
        return number

    # -- From the operator -------------------------------------------------------------------------

    def reset(self, name: str) -> None:
        """Let a version begin anew."""
        if name in self._tables.types:
            self._tables.begin(name, self._world.server.transactions.view())
            for journal in self._world.servers:
                self._known.pop(key_of(name, journal), None)
            self._behind = None
            self._note_wanted(name, self._tables.beginnings[name], self._tables.types[name])
            self._world.transition("projection", "follows", "is reset")

    def skipped(self, name: str, key: Key, number: int) -> None:
        self._behind = None
        self._skipped[name, key, number] = None
        self._world.transition("projection", "is parked", "is skipped")

    def mends(self, name: str, key: Key) -> None:
        """Let the handler succeed at all events of an entity that are there."""
        for _, payload in self._ever.get(key, ()):
            self._failures[name, payload] = 0
        self._world.transition("projection", "is parked", "is tried again")

    def refused(self) -> list[str]:
        """Return the versions that have to be reset, and were not since they were refused."""
        return [name for name, begun in self._refused.items() if self._tables.beginnings[name] == begun]

    # -- In calm -----------------------------------------------------------------------------------

    def heal(self) -> None:
        """Let no handler fail from now on, and nothing be paused."""
        self._is_well = True
        self._tables.paused.clear()

    def close(self, key: Key) -> None:
        """Let the handler fail at all events of an entity."""
        self.closed[key] = None
        self._behind = None

    def open(self, key: Key) -> None:
        del self.closed[key]
        self._behind = None

    def parked(self) -> list[Key]:
        return [key for (_, key), (held, _) in self._tables.held.items() if held.parked]

    def behind(self) -> list[str]:
        """Return what the versions lack, or have that the journal has not."""
        if self._behind is None:
            journals = list(self._world.servers)
            self._behind = [text for each in (FIRST, SECOND) for text in self._lacks(each.name, journals)]
        return self._behind

    def behind_elsewhere(self, journal: str) -> list[str]:
        """Return what the versions lack of entities that do not lie in a journal."""
        journals = [each for each in self._world.servers if each != journal]
        return [text for each in (FIRST, SECOND) for text in self._lacks(each.name, journals)]

    def are_live(self) -> bool:
        return all(each.name in self._tables.live for each in (FIRST, SECOND))

    def _lacks(self, name: str, journals: Sequence[str]) -> list[str]:
        if name not in self._tables.types:
            return [f"{name} has not begun"]
        types = self._tables.types[name]
        shown: dict[Key, list[Row]] = {}
        for row in self._tables.rows[name]:
            shown.setdefault(row[0], []).append(row)
        positions = [self._tables.positions.get(key_of(name, each), {}) for each in journals]
        fills = any(not each or any(one.is_filling for one in each.values()) for each in positions)
        lacks = [f"{name} fills"] if fills else []
        stored = {key: found for key, found in self._stored(journals).items() if key[0] in types and found}
        elsewhere = self._stored([each for each in self._world.servers if each not in journals])
        for key in {**stored, **shown}:
            if key in self.closed or key in elsewhere:
                continue
            wanted = [
                (key, number, each.row.payload)
                for number, each in sorted(stored.get(key, {}).items())
                if (name, key, number) not in self._skipped
            ]
            found = [row for row in shown.get(key, ()) if (name, key, row[1]) not in self._skipped]
            if found != wanted:
                lacks.append(
                    f"{name} has {len(found)} events of {self._name(key)}, the journal {len(wanted)}"
                )
        return lacks

    # -- Inside ------------------------------------------------------------------------------------

    def _note_wanted(self, name: str, beginning: int, types: Collection[int]) -> None:
        self._wanted[name, beginning] = {
            key: max(found) for key, found in self._stored().items() if key[0] in types and found
        }

    def _stored(self, journals: Iterable[str] | None = None) -> Mapping[Key, Mapping[int, Committed]]:
        """Return the events of some journals, or of all."""
        world = self._world
        chosen = [world.servers[each] for each in (world.servers if journals is None else journals)]
        if not has_moves(world.seed):
            return ChainMap(*(each.journal.events for each in chosen))
        return {
            key: events
            for each in chosen
            for key, events in each.journal.events.items()
            if world.lies_in(each, world.witness.name_of(key[0]), key[1])
        }

    def _judge_positions(self, name: str, journal: str, slices: tuple[int, int]) -> None:
        first, last = slices
        running = self._world.servers[journal].transactions.running
        key = key_of(name, journal)
        known = self._known.setdefault(key, {})
        for each in self._tables.positions[key].values():
            early = [xid for xid in running if each.view.sees(xid)]
            if early:
                self._broke(
                    "late_commits_are_waited_for", f"{name} has passed transaction {early[0]}, which runs"
                )
            for slice_ in range(each.first, each.last + 1):
                former = known.get(slice_)
                if former is each:
                    continue
                known[slice_] = each
                if former is not None and first <= slice_ <= last and each.turn <= former.turn:
                    detail = f"two turns of {name} have followed turn {each.turn - 1} of slice {slice_}"
                    self._broke("one_turn_at_a_time", detail)

    def _compare(self, name: str, keys: Collection[Key]) -> None:
        """Compare the rows of these entities with what was committed."""
        shown: dict[Key, list[Row]] = {}
        for row in self._tables.rows[name]:
            if row[0] in keys:
                shown.setdefault(row[0], []).append(row)
        for key, rows in shown.items():
            self._compare_entity(name, key, rows)

    def _compare_entity(self, name: str, key: Key, rows: Iterable[Row]) -> None:
        expected, ever = 1, self._ever.get(key, {})
        for _, number, payload in rows:
            while expected < number and (name, key, expected) in self._skipped:
                expected += 1
            if number < expected:
                self._broke("events_once_in_order", f"{name} has #{number} after #{expected - 1}", key)
            elif number > expected:
                self._broke("events_are_not_skipped", f"{name} has #{number} after #{expected - 1}", key)
            elif (number, payload) not in ever:
                self._broke("sees_what_is_committed", f"{name} has another #{number} than was committed", key)
            expected = number + 1

    def _name(self, key: Key) -> str:
        return f"{self._world.witness.name_of(key[0])}/{key[1]}"

    def _broke(self, name: str, detail: str, key: Key | None = None) -> None:
        self._world.broke(PromiseBroken(17, name, detail, None if key is None else self._name(key)))
