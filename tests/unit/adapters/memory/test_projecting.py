"""Turns of projections beside appends, erasures, failures and kills, at every step of each: each
event once, each entity's in order, none skipped.
"""

import random
from collections.abc import Callable, Generator, Sequence
from typing import Any

import pytest

from sharding_app.adapters.memory import projecting
from sharding_app.adapters.memory.journal_writes import JournalWrites
from sharding_app.adapters.memory.locks import Lock
from sharding_app.adapters.memory.projecting import MemoryPart
from sharding_app.adapters.memory.server import MemoryServer
from sharding_app.adapters.memory.sessions import ConnectionLost, ServerError, Session
from sharding_app.adapters.memory.steps import Pause, Steps
from sharding_app.ports.projections import HandlerFailed
from sharding_app.protocol.projection import turn
from sharding_app.protocol.projection.requests import Changes, Found, Key, StoredEvent
from sharding_app.protocol.projection.slices import slices_of
from sharding_app.protocol.projection.turn import Limits, Outcome
from sharding_app.protocol.projection.view import View
from tests.support.given import event_row

TYPES = (1, 2)
ENTITIES = [(type_id, f"e{number}") for type_id in TYPES for number in range(7)]


class World:
    """A virtual server whose requests go on in an order of chance."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.waiting: list[Callable[[], object]] = []
        self.clock = 0.0
        self.server = MemoryServer(
            now=lambda: self.clock,
            later=lambda _, callback: self.waiting.append(callback),
            pace=lambda *_: 1.0,
        )
        self.server.statement_seconds = 1e9
        self.writes = JournalWrites(self.server)
        self.server.cluster.epochs.update({(type_id, 0): 1 for type_id in TYPES})
        self.busy: set[Key] = set()
        self.bad: dict[bytes, int] = {}
        "Payloads at which the handler fails this often."
        self.careful = False
        self.limits = Limits(events=4, chunk=3, keys=3, failures=1000, back_off=0.0)
        self.outcomes: list[Outcome] = []
        self.number = 0
        self.is_quiet = False

    def execute(self, session: Session, kind: str, request: Callable[[], Steps[Any]], done: Any) -> None:
        self.server.execute(session, kind, request, done)

    def append(self) -> None:
        """Begin an append of some entities; it may take its number long before it writes."""
        keys = [each for each in ENTITIES if each not in self.busy]
        wanted = self.chance.sample(keys, min(len(keys), self.chance.randint(1, 3)))
        if not wanted:
            return
        rows = []
        for key in wanted:
            last = max(self.server.journal.events.get(key, ()), default=0)
            for number in range(self.chance.randint(1, 3)):
                self.number += 1
                payload = f'{{"n": {self.number}}}'.encode()
                rows.append(event_row(key[0], key[1], last + number + 1, payload=payload))
                if self.chance.random() < 0.05:
                    self.bad[payload] = self.chance.randint(1, 4)
        self.busy.update(wanted)
        delay = self.chance.choice((0, 0, 0, 10))

        def steps() -> Generator[Any, None, None]:
            self.server.transactions.begin(self.server.serving)
            for _ in range(delay):
                yield Pause.WORK
            yield from self.writes.append(rows)

        self._begin(steps, "append", wanted)

    def erase(self) -> None:
        """Begin an erasure, in pieces. One that is interrupted is begun again."""
        keys = [each for each in ENTITIES if each not in self.busy]
        if keys:
            key = self.chance.choice(keys)
            at_most = self.chance.choice((1, 2, 1000))
            self.busy.add(key)
            self._begin(lambda: self._erased(key, at_most), "erase", [key])

    def _erased(self, key: Key, at_most: int) -> Steps[None]:
        while True:
            piece = yield from self.writes.erase(key[0], 0, 1, key[1], at_most)
            if piece.whole:
                return
            yield Pause.NEXT

    def _begin(self, steps: Callable[[], Steps[Any]], kind: str, keys: Sequence[Key]) -> None:
        session = self.server.connect("writer")

        def done(outcome: object, failed: bool) -> None:
            assert not failed or isinstance(outcome, ServerError | ConnectionLost), outcome
            if failed and kind == "erase":
                self._begin(steps, kind, keys)
            else:
                self.busy.difference_update(keys)

        self.execute(session, kind, steps, done)
        if self.chance.random() < 0.1:
            self.waiting.append(lambda: self.server.sessions.end(session))

    def turn(self, part: int, parts: int) -> None:
        """Begin a turn; its worker may be killed at any step."""
        work = MemoryPart(
            self.server, "p", TYPES, self.handle, limits=self.limits,
            erase=lambda rows, key: [each for each in rows if each[0] != key],
        )  # fmt: skip
        session = self.server.connect("worker", lock_seconds=1e9)

        def done(outcome: object, failed: bool) -> None:
            self.careful = isinstance(outcome, HandlerFailed)
            if isinstance(outcome, Outcome):
                self.outcomes.append(outcome)
            assert not failed or isinstance(outcome, HandlerFailed | ServerError | ConnectionLost), outcome
            self.check()

        careful = self.careful or self.chance.random() < 0.3
        self.execute(
            session, "projection", lambda: work.steps(*slices_of(part, parts), careful=careful), done
        )
        if not self.is_quiet and self.chance.random() < 0.2:
            self.waiting.append(lambda: self.server.sessions.end(session))

    def handle(self, events: Sequence[StoredEvent], erased: Key | None, careful: bool) -> list[Any] | str:
        for each in events:
            if self.bad.get(each.payload, 0) > 0:
                self.bad[each.payload] -= 1
                if careful:
                    return "it is bad"
                raise HandlerFailed("it is bad")
        return [(each.key, each.seq, each.payload) for each in events]

    def go_on(self) -> None:
        self.clock += 1.0
        if self.waiting:
            self.waiting.pop(self.chance.randrange(len(self.waiting)))()

    def check(self) -> None:
        """No event is there twice, and each entity's are in order."""
        rows = self.server.projections.rows.get("p", [])
        assert len({payload for _, _, payload in rows}) == len(rows)
        for key in ENTITIES:
            numbers = [seq for owner, seq, _ in rows if owner == key]
            assert numbers == sorted(set(numbers)), (key, numbers)

    def settle(self) -> None:
        """End all that is under way, and take turns until there is no more to do."""
        while self.waiting:
            self.go_on()
        self.is_quiet = True
        self.bad.clear()
        for _ in range(500):
            self.turn(0, 1)
            while self.waiting:
                self.go_on()
            if not self.outcomes[-1].more and not self.server.projections.held:
                return
            self.server.projections.tidy("p")
        raise AssertionError("it does not come to an end")


def judged(seed: int) -> None:
    """Let a seed's history happen, and compare its end with the journal."""
    world = World(seed)
    chance = world.chance
    for _ in range(chance.randint(0, 150)):
        chance.choice((world.append, world.go_on, world.go_on))()
    parts = chance.choice((1, 2, 3, 8))
    for _ in range(2000):
        what = chance.random()
        if what < 0.04:
            world.append()
        elif what < 0.045:
            world.erase()
        elif what < 0.09:
            world.turn(chance.randrange(parts), parts)
        elif what < 0.093:
            parts = chance.choice((1, 2, 3, 8))
        elif what < 0.1 and world.server.projections.types:
            world.server.projections.tidy("p")
        else:
            world.go_on()
    world.settle()
    rows = world.server.projections.rows["p"]
    for key in ENTITIES:
        wanted = [row.payload for _, (row, _) in sorted(world.server.journal.events.get(key, {}).items())]
        assert [payload for owner, _, payload in rows if owner == key] == wanted, key
    assert len(world.server.projections.positions["p"]) == 1


@pytest.mark.parametrize("seed", range(8))
def test_each_event_is_handled_once_in_order_and_none_is_skipped(seed: int) -> None:
    judged(seed)


def late_commit_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def upto(self: View, later: View, bound: int | None) -> View:
        return View(bound or later.xmax, bound or later.xmax)

    monkeypatch.setattr(View, "upto", upto)


def position_moves_before_the_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Move positions as soon as changes are read, and write rows with the commit."""
    real = projecting._Own._changes

    def changes(self: projecting._Own, request: Changes) -> Found:
        found: Found = real(self, request)
        there = self._tables.positions[self._name]
        for first in self._taken:
            there[first] = there[first]._replace(view=there[first].view.upto(found.view, found.bound))
        return found

    monkeypatch.setattr(projecting._Own, "_changes", changes)


def two_workers_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lock nothing that another turn would wait for."""
    monkeypatch.setattr(projecting, "Lock", lambda key: Lock((*key, id(object()))))


def fill_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projecting._Own, "_read_filled", lambda self, request: {})


def entity_that_waits_is_fed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = turn._left
    monkeypatch.setattr(turn, "_left", lambda spans, held: real(spans, {}))


@pytest.mark.parametrize(
    "plant",
    [
        late_commit_is_passed_over,
        position_moves_before_the_effect,
        two_workers_at_once,
        fill_is_forgotten,
        entity_that_waits_is_fed,
    ],
)
def test_planted_mistakes_are_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for seed in range(12):
        try:
            judged(seed)
        except (AssertionError, KeyError):
            return
    raise AssertionError("no seed has found it")
