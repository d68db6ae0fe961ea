"""The workload of virtual clients: commands with unique tokens, queries, rejections and failures.

An entity's state is the list of its tokens, so that any answer can be compared with the journal.
Every handler reports to the `Witness` of its world that this object handles something now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, Protocol

from sharding_app.entities.base import Entity, EventSourced, Singleton
from sharding_app.entities.entity_type import EntityType
from sharding_app.entities.events import applies, event
from sharding_app.entities.handlers import command, every, query
from sharding_app.entities.messages import message
from sharding_app.entities.registry import registry
from sharding_app.entities.settings import ShardingSettings
from sharding_app.errors import Rejected, ShardingError
from sharding_app.protocol.allocation.singleton import SINGLETON
from sharding_app.testing.simulation import own_rows
from sharding_app.testing.simulation.memory_checker import MemoryChecker
from sharding_app.testing.simulation.message_checker import MessageChecker
from sharding_app.testing.simulation.schedules import DAY_AT, TICK_SECONDS, Schedules
from sharding_app.testing.simulation.stubborn import Stubborn
from sharding_app.testing.simulation.timers import Timers

if TYPE_CHECKING:
    from sharding_app.testing.simulation.workers import WorkerChecker

Ending = Literal["rest", "quit", "terminated"]
"""It passivates; it stops without that, and runs again; it got its termination message."""


class Observer(Protocol):
    """The receiver of reports of entities (`testing.simulation.checker`)."""

    timers: Timers
    stubborn: Stubborn
    messages: MessageChecker
    memory: MemoryChecker
    schedules: Schedules
    workers: WorkerChecker

    def handling_begins(self, entity: Entity) -> object: ...

    def handling_ends(self, handle: object) -> None: ...

    def answers_beside(self, entity: Entity) -> None:
        """Note that a concurrent query is answered, which no instance handles."""
        ...

    def stops(self, entity: Entity, how: Ending) -> None:
        """Note that the entity ends with the handler that runs."""
        ...

    def lies_in_the_cluster(self, entity: Entity) -> bool:
        """Tell whether an entity's rows lie in the cluster's own database."""
        ...

    def cycle_refused(self, token: str) -> None:
        """Note that the call with this token was refused: it would have waited for itself."""
        ...


observer: Observer | None = None
"""Set by the world that runs in this thread."""


@contextmanager
def seen(entity: Entity) -> Iterator[None]:
    watching = observer
    if watching is None:
        yield
        return
    handle = watching.handling_begins(entity)
    try:
        yield
    finally:
        watching.handling_ends(handle)


def ends(entity: Entity, how: Ending) -> None:
    if observer is not None:
        observer.stops(entity, how)


def call_refused(token: str, error: ShardingError) -> None:
    """Report why an entity may not make a call."""
    if observer is not None and error.code in ("call_cycle", "deadlock"):
        observer.cycle_refused(token)


def told(entity: Book) -> tuple[int, str]:
    """Return a state as in an answer: the number of its tokens, and the last one."""
    return len(entity.tokens), entity.tokens[-1] if entity.tokens else ""


ROLE = "back"
"""Role of the nodes that may host the singleton."""
PROXY_BUFFER = 3
ZONE = "Asia/Kathmandu"
"""Of times of day: its clocks are not changed."""
SNAPSHOT_EVERY = 3
LEASE = "sim"
"""Source of the leases."""

# These classes are for virtual clusters only: a real process must not find them among its types.
with registry.isolated():

    @event
    class Noted:
        token: str

    class Book(Entity):
        """Notes tokens. Every answer gives their number, for a comparison with the journal."""

        abstract = True
        tokens: list[str]

        def __init__(self) -> None:
            self.tokens = []

        def keep(self, *tokens: str) -> Awaitable[None]:
            """Add tokens to the state. If it is awaited, they are stored now."""
            raise NotImplementedError

        @command
        def add(self, token: str) -> int:
            with seen(self):
                self.keep(token)
                return len(self.tokens)

        @command
        def add_two(self, first: str, second: str) -> int:
            with seen(self):
                self.keep(first, second)
                return len(self.tokens)

        @command
        async def add_slowly(self, token: str) -> int:
            with seen(self):
                await asyncio.sleep(0.02)
                self.keep(token)
                return len(self.tokens)

        @command
        async def add_in_steps(self, first: str, second: str) -> int:
            with seen(self):
                await self.keep(first)
                await asyncio.sleep(0.01)
                self.keep(second)
                return len(self.tokens)

        @command
        def reject(self, token: str) -> int:
            with seen(self):
                raise Rejected(f"not {token}", code="not_today")

        @command
        def fail(self, token: str) -> int:
            with seen(self):
                self.keep(token)
                raise ZeroDivisionError(token)

        @query
        def total(self) -> tuple[int, str]:
            with seen(self):
                return told(self)

        @query
        async def total_slowly(self) -> tuple[int, str]:
            with seen(self):
                answer = told(self)
                await asyncio.sleep(0.01)
                return answer

        @query(concurrent=True)
        def total_beside(self) -> tuple[int, str]:
            if observer is not None:
                observer.answers_beside(self)
            return told(self)  # of a copy, perhaps: no instance handles this

        @query(fenced=True)
        def total_surely(self) -> tuple[int, str]:
            with seen(self):
                return told(self)

    class Ledger(Book, EventSourced, name="sim.Ledger"):
        """Keeps an event for each token."""

        settings = ShardingSettings(number_of_shards=4, passivate_after_seconds=2.0)

        def keep(self, *tokens: str) -> Awaitable[None]:
            return self.persist(*map(Noted, tokens))

        @applies(Noted)
        def on_noted(self, happened: Noted) -> None:
            self.tokens.append(happened.token)

    class Till(Ledger, name="sim.Till"):
        """Writes rows of its own in the transactions of its events, or of none."""

        settings = ShardingSettings(number_of_shards=2, passivate_after_seconds=1.0)

        @command
        def book(self, token: str) -> None:
            with seen(self):
                self.persist(Noted(token), in_transaction=lambda: own_rows.insert(token))

        @command
        def book_only(self, token: str) -> None:
            with seen(self):
                self.persist(in_transaction=lambda: own_rows.insert(token))

        @command
        def book_and_tell(self, token: str) -> None:
            """Write a row whose hook raises, as if a broker were away: the row is there anyway."""

            def write() -> None:
                own_rows.insert(token)
                own_rows.on_commit(lambda: 1 // 0)

            with seen(self):
                self.persist(Noted(token), in_transaction=write)

    class Diary(Ledger, name="sim.Diary"):
        """A ledger with other shards, and with snapshots. Its entities are erased now and then."""

        settings = ShardingSettings(
            number_of_shards=3, passivate_after_seconds=0.6, snapshot_every=SNAPSHOT_EVERY, keep_snapshots=2
        )

    class Vault(Ledger, name="sim.Vault"):
        """A ledger whose shards run with a lease each."""

        settings = ShardingSettings(number_of_shards=2, passivate_after_seconds=2.0, use_lease=LEASE)

    @message
    class Quit:
        """The termination message of the singleton."""

    class Quitter(Ledger):
        """Stops when `quit` is called."""

        abstract = True

        @command
        def quit(self) -> tuple[int, str]:
            with seen(self):
                ends(self, "quit")
                self.context.stop()
                return told(self)

    class Watch(Quitter, name="sim.Watch"):
        """Remembered: once it has run, it runs until it goes to rest."""

        settings = ShardingSettings(number_of_shards=3, remember_entities=True)

        @command
        def rest(self) -> tuple[int, str]:
            with seen(self):
                ends(self, "rest")
                self.context.passivate()
                return told(self)

    class Warden(Quitter, name=f"{SINGLETON}sim.Warden"):
        """A singleton: started without a message, and terminated when it is handed over."""

        settings = ShardingSettings(
            number_of_shards=1, role=ROLE, passivate_after_seconds=0, stop_message=Quit()
        )

        async def receive(self, message: object) -> object:
            if isinstance(message, Quit):
                with seen(self):
                    ends(self, "terminated")
                    await asyncio.sleep(0.01)
                    self.context.stop()
            return None

    class Keyholder(Warden, name=f"{SINGLETON}sim.Keyholder"):
        """A singleton that also needs a lease."""

        settings = ShardingSettings(
            number_of_shards=1, role=ROLE, passivate_after_seconds=0, stop_message=Quit(), use_lease=LEASE
        )

    class Clerk(Singleton, Warden, name="sim.Clerk"):
        """A singleton with a schedule (`schedules`)."""

        def note(self, what: str) -> None:
            with seen(self):
                self.keep(f"{what} {1 + sum(each.startswith(what) for each in self.tokens)}")

        @every(seconds=TICK_SECONDS)
        @command
        def tick(self) -> None:
            self.note("tick")

        @every(day_at=DAY_AT, tz=ZONE)
        @command
        def begin_the_day(self) -> None:
            self.note("day")


def made_of(cls: type[Book]) -> EntityType:
    """Return the type of a declared class."""
    if cls._sharding_type is None:
        raise LookupError(f"{cls.__name__} is no type of entities")
    return cls._sharding_type


TYPES = (made_of(Ledger), made_of(Diary))
ENTITIES = tuple(
    (entity_type, f"{entity_type.cls.__name__.lower()}-{number}")
    for entity_type in TYPES
    for number in range(5)
)
"""(type, id) of every ordinary entity that clients call."""


def singleton(entity_type: EntityType) -> EntityType:
    """Make a type a singleton as `ClusterSingleton.start` does, without a real region."""
    if entity_type.singleton_id is None:
        entity_type.singleton_id = entity_type.name.removeprefix(SINGLETON)
    entity_type.waiting_limit = PROXY_BUFFER
    return entity_type


SNAPPED = TYPES[1]
TILL = made_of(Till)
BOOKINGS = ("book", "book_only", "book_and_tell")
"""Commands of users to a till."""
REMEMBERED, LEASED = made_of(Watch), made_of(Vault)
WARDEN, KEYHOLDER, CLERK = (singleton(made_of(each)) for each in (Warden, Keyholder, Clerk))
