"""Turns of a projection whose entities lie in two journals on two virtual servers, beside appends,
kills, and times in which one of them is down.
"""

import random
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any

import pytest

from sharding_app.adapters.memory.journal_writes import JournalWrites
from sharding_app.adapters.memory.projecting import MemoryPart
from sharding_app.adapters.memory.projection_rows import key_of
from sharding_app.adapters.memory.server import MemoryServer
from sharding_app.adapters.memory.sessions import ConnectionLost, ServerError
from sharding_app.adapters.memory.steps import Pause
from sharding_app.ports.projections import Refused
from sharding_app.protocol.projection.requests import Key, StoredEvent
from sharding_app.protocol.projection.slices import slices_of
from sharding_app.protocol.projection.turn import Limits, Outcome
from tests.support.given import event_row

JOURNALS = ("", "second")
ENTITIES = [(1, f"e{number}") for number in range(10)]
LIMITS = Limits(events=4, chunk=3, keys=3)


def journal_of(key: Key) -> str:
    return JOURNALS[int(key[1][1:]) % 2]


class World:
    """Two servers whose requests go on in an order of chance."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.waiting: list[Callable[[], object]] = []
        self.clock = 0.0
        self.servers = {each: self._server() for each in JOURNALS}
        # A view of one server says nothing about the other one.
        self.servers["second"].transactions.next = 500
        self.busy: set[Key] = set()
        self.number = 0
        self.refused: list[Refused] = []
        self.outcomes: dict[str, Outcome] = {}
        self.is_quiet = False

    def _server(self) -> MemoryServer:
        made = MemoryServer(
            now=lambda: self.clock,
            later=lambda _, callback: self.waiting.append(callback),
            pace=lambda *_: 1.0,
        )
        made.statement_seconds = 1e9
        made.cluster.epochs[1, 0] = 1
        return made

    def append(self) -> None:
        journal = self.chance.choice(JOURNALS)
        server = self.servers[journal]
        free = [each for each in ENTITIES if each not in self.busy and journal_of(each) == journal]
        wanted = self.chance.sample(free, min(len(free), self.chance.randint(1, 2)))
        if not wanted or not server.up:
            return
        rows = []
        for key in wanted:
            last = max(server.journal.events.get(key, ()), default=0)
            for number in range(self.chance.randint(1, 3)):
                self.number += 1
                rows.append(event_row(*key, last + number + 1, payload=f'{{"n": {self.number}}}'.encode()))
        self.busy.update(wanted)
        delay = self.chance.choice((0, 0, 10))

        def steps() -> Generator[Any, None, None]:
            server.transactions.begin(server.serving)
            for _ in range(delay):
                yield Pause.WORK
            yield from JournalWrites(server).append(rows)

        server.execute(
            server.connect("writer"), "append", steps, lambda *_: self.busy.difference_update(wanted)
        )

    def part(self, journal: str) -> MemoryPart:
        return MemoryPart(
            self.servers[""], "p", (1,), self.handle, limits=LIMITS, journal=journal,
            there=self.servers[journal], journals=JOURNALS,
        )  # fmt: skip

    def handle(self, events: Sequence[StoredEvent], erased: Key | None, careful: bool) -> list[Any]:
        return [(each.key, each.seq, each.payload) for each in events]

    def turn(self, journal: str, part: int = 0, parts: int = 1) -> None:
        """Begin a turn; its worker may be killed at any step."""
        server, work = self.servers[""], self.part(journal)
        session = server.connect("worker", lock_seconds=1e9)

        def done(outcome: object, failed: bool) -> None:
            if isinstance(outcome, Outcome):
                self.outcomes[journal] = outcome
            elif isinstance(outcome, Refused):
                self.refused.append(outcome)
            else:
                assert isinstance(outcome, ServerError | ConnectionLost), outcome

        server.execute(session, "projection", lambda: work.steps(*slices_of(part, parts)), done)
        if not self.is_quiet and self.chance.random() < 0.2:
            self.waiting.append(lambda: server.sessions.end(session))

    def tidy(self, journal: str) -> None:
        try:
            if self.servers[""].projections.types:
                self.part(journal).tidied()
        except ServerError:
            assert not self.servers[journal].up

    def go_on(self) -> None:
        self.clock += 1.0
        if self.waiting:
            self.waiting.pop(self.chance.randrange(len(self.waiting)))()

    def settle(self, journals: Sequence[str] = JOURNALS) -> None:
        self.is_quiet = True
        while self.waiting:
            self.go_on()
        for journal in journals:
            for _ in range(300):
                self.turn(journal)
                while self.waiting:
                    self.go_on()
                if journal in self.outcomes and not self.outcomes[journal].more:
                    break
                self.tidy(journal)
            else:
                raise AssertionError("it does not come to an end")

    def exact(self, journals: Sequence[str] = JOURNALS) -> bool:
        """Whether all events of these journals are there once and in order."""
        rows = self.servers[""].projections.rows.get("p", [])
        for key in ENTITIES:
            events = self.servers[journal_of(key)].journal.events.get(key, {})
            wanted = [row.payload for _, (row, _) in sorted(events.items())]
            if journal_of(key) in journals and [each for owner, _, each in rows if owner == key] != wanted:
                return False
        return True


def lived(seed: int) -> World:
    world = World(seed)
    for _ in range(1500):
        chance = world.chance.random()
        if chance < 0.05:
            world.append()
        elif chance < 0.12:
            parts = world.chance.choice((1, 2))
            world.turn(world.chance.choice(JOURNALS), world.chance.randrange(parts), parts)
        elif chance < 0.14:
            world.tidy(world.chance.choice(JOURNALS))
        elif chance < 0.143:
            second = world.servers["second"]
            second.stop() if second.up else second.start()
        else:
            world.go_on()
    world.servers["second"].start()
    return world


@pytest.mark.parametrize("seed", range(12))
def test_each_event_is_handled_once_in_order_and_none_is_skipped(seed: int) -> None:
    world = lived(seed)
    world.settle()
    assert world.exact()
    assert world.refused == []
    assert world.number > 50


def test_a_server_that_is_down_stops_its_own_positions_only() -> None:
    world = World(0)
    for _ in range(200):
        world.append()
        world.go_on()
    world.settle()
    second, handled = world.servers["second"], len(world.servers[""].projections.rows["p"])
    for _ in range(100):
        world.append()
        world.go_on()
    second.stop()
    world.settle([""])
    assert world.exact([""])
    assert len(world.servers[""].projections.rows["p"]) > handled
    assert not world.exact()
    second.start()
    world.outcomes.clear()
    world.settle()
    assert world.exact()


@pytest.mark.parametrize("seed", range(6))
def test_a_server_that_has_lost_its_last_transactions_is_refused_until_a_reset(seed: int) -> None:
    world = World(seed)
    for _ in range(100):
        world.append()
        world.go_on()
    world.settle()
    second, tables = world.servers["second"], world.servers[""].projections
    second.standby.part(asynchronous=True)
    world.is_quiet = False
    before = dict(second.projections.secured)
    while second.projections.secured == before:
        world.append()
        world.turn("second")
        world.go_on()
    world.is_quiet = True
    while world.waiting:
        world.go_on()
    second.fail_over()
    for _ in range(20):
        world.append()
    world.turn("second")
    while world.waiting:
        world.go_on()
    assert len(world.refused) == 1
    tables.begin("p", world.servers[""].transactions.view())
    world.outcomes.clear()
    world.settle()
    assert world.exact()


@pytest.mark.parametrize("steps", range(12))
def test_a_turn_ends_with_its_connection_to_a_server_that_fails_over(steps: int) -> None:
    """What it has read may be gone there, and the numbers of events come again."""
    world = World(0)
    for _ in range(100):
        world.append()
        world.go_on()
    world.settle()
    second, tables = world.servers["second"], world.servers[""].projections
    second.standby.part(asynchronous=True)
    for _ in range(3):
        world.append()
    while world.waiting:
        world.go_on()
    world.turn("second")
    for _ in range(steps):
        world.go_on()
    second.fail_over()
    for _ in range(20):
        world.append()
    while world.waiting:
        world.go_on()
    world.turn("second")
    while world.waiting:
        world.go_on()
    if world.refused:
        tables.begin("p", world.servers[""].transactions.view())
    world.outcomes.clear()
    world.settle()
    assert world.exact()


def test_nothing_is_trimmed_there_before_a_position_is_copied() -> None:
    world = World(3)
    for _ in range(100):
        world.append()
        world.go_on()
    world.settle()
    second = world.servers["second"]
    world.tidy("second")
    key = ENTITIES[1]
    assert second.projections.may_trim(*key) > max(second.journal.events[key])
    row = event_row(*key, max(second.journal.events[key]) + 1, payload=b"{}")
    second.execute(
        second.connect("writer"), "append", lambda: JournalWrites(second).append([row]), lambda *_: None
    )
    while world.waiting:
        world.go_on()
    world.outcomes.clear()
    world.settle(["second"])
    assert key_of("p", "second") in world.servers[""].projections.positions
    assert second.projections.may_trim(*key) == row.seq
    world.tidy("second")
    assert second.projections.may_trim(*key) > row.seq


def test_an_erasure_is_told_where_the_entity_lies_alone() -> None:
    """Its home erases messages from outside in the cluster's own journal, where no turn has to
    know: it may come behind the entity's next event.
    """
    world = World(0)
    world.settle()
    cluster = world.servers[""].cluster
    cluster.type_ids["a type"], cluster.journals["a type", 0] = 1, "second"
    for server in world.servers.values():
        erase = partial(JournalWrites(server).erase, 1, 0, 1, "e1", 9)
        server.execute(server.connect("home"), "erase", erase, lambda *_: None)
    while world.waiting:
        world.go_on()
    told = {
        name: [each.entity for each in server.projections.changes] for name, server in world.servers.items()
    }
    assert told == {"": [], "second": ["e1"]}
