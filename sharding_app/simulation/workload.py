"""What the virtual clients do: commands with unique tokens, queries, rejections and failures on a few entities.

An entity's state is the list of its tokens, so that any answer can be compared with the journal. Every handler tells
the `Witness` of the world in which it runs that this object handles something now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, Protocol

from sharding_app.core.oldest import SINGLETON
from sharding_app.errors import Rejected
from sharding_app.model.entity import EventSourced
from sharding_app.model.event import applies, event
from sharding_app.model.handlers import command, query
from sharding_app.model.message import message
from sharding_app.model.registry import registry
from sharding_app.model.settings import ShardingSettings
from sharding_app.model.types import EntityType
from sharding_app.simulation import own_rows

Ending = Literal["rest", "quit", "terminated"]
"""It passivates; it stops without that, and runs again; it got its termination message."""


class Observer(Protocol):
    """Who is told of what entities do (`simulation.witness`)."""

    def handling_begins(self, entity: EventSourced) -> object: ...

    def handling_ends(self, handle: object) -> None: ...

    def stops(self, entity: EventSourced, how: Ending) -> None:
        """The handler that runs has said that the entity ends with it."""
        ...


observer: Observer | None = None
"""Set by the world that runs in this thread."""


@contextmanager
def seen(entity: EventSourced) -> Iterator[None]:
    watching = observer
    if watching is None:
        yield
        return
    handle = watching.handling_begins(entity)
    try:
        yield
    finally:
        watching.handling_ends(handle)


def ends(entity: EventSourced, how: Ending) -> None:
    if observer is not None:
        observer.stops(entity, how)


def told(entity: Ledger) -> tuple[int, str]:
    """What an answer tells of a state: how many tokens, and the last."""
    return len(entity.tokens), entity.tokens[-1] if entity.tokens else ""


ROLE = "back"
"""Of the nodes that may host the singleton."""
PROXY_BUFFER = 3
SNAPSHOT_EVERY = 3
LEASE = "sim"
"""Where leases come from."""

# These classes are for virtual clusters only: a real process must not find them among its types.
with registry.isolated():

    @event
    class Noted:
        token: str

    class Ledger(EventSourced, name="sim.Ledger"):
        """Notes tokens. Every answer tells how many it has, so that it can be compared with the journal."""

        settings = ShardingSettings(number_of_shards=4, passivate_after_seconds=2.0)
        tokens: list[str]

        def __init__(self) -> None:
            self.tokens = []

        @command
        def add(self, token: str) -> int:
            with seen(self):
                self.persist(Noted(token))
                return len(self.tokens)

        @command
        def add_two(self, first: str, second: str) -> int:
            with seen(self):
                self.persist(Noted(first), Noted(second))
                return len(self.tokens)

        @command
        async def add_slowly(self, token: str) -> int:
            with seen(self):
                await asyncio.sleep(0.02)
                self.persist(Noted(token))
                return len(self.tokens)

        @command
        async def add_in_steps(self, first: str, second: str) -> int:
            with seen(self):
                await self.persist(Noted(first))
                await asyncio.sleep(0.01)
                self.persist(Noted(second))
                return len(self.tokens)

        @command
        def reject(self, token: str) -> int:
            with seen(self):
                raise Rejected(f"not {token}", code="not_today")

        @command
        def fail(self, token: str) -> int:
            with seen(self):
                self.persist(Noted(token))
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

        @query(fenced=True)
        def total_surely(self) -> tuple[int, str]:
            with seen(self):
                return told(self)

        @applies(Noted)
        def on_noted(self, happened: Noted) -> None:
            self.tokens.append(happened.token)

    class Till(Ledger, name="sim.Till"):
        """Writes rows of its own in the transactions of its events, or of none."""

        settings = ShardingSettings(number_of_shards=2, passivate_after_seconds=1.0)

        @command
        def book(self, token: str) -> None:
            with seen(self):
                self.persist(Noted(token), also=lambda: own_rows.insert(token))

        @command
        def book_only(self, token: str) -> None:
            with seen(self):
                self.persist(also=lambda: own_rows.insert(token))

        @command
        def book_and_tell(self, token: str) -> None:
            """The hook raises, as one does whose broker is away: the row is there all the same."""

            def write() -> None:
                own_rows.insert(token)
                own_rows.on_commit(lambda: 1 // 0)

            with seen(self):
                self.persist(Noted(token), also=write)

    class Diary(Ledger, name="sim.Diary"):
        """The same with other shards, and with snapshots. Its entities are erased now and then."""

        settings = ShardingSettings(
            number_of_shards=3, passivate_after_seconds=0.6, snapshot_every=SNAPSHOT_EVERY, keep_snapshots=2
        )

    class Vault(Ledger, name="sim.Vault"):
        """Its shards run with a lease each."""

        settings = ShardingSettings(number_of_shards=2, passivate_after_seconds=2.0, use_lease=LEASE)

    @message
    class Quit:
        """The termination message of the singleton."""

    class Quitter(Ledger):
        """Stops when it is told to."""

        abstract = True

        @command
        def quit(self) -> tuple[int, str]:
            with seen(self):
                ends(self, "quit")
                self.context.stop()
                return told(self)

    class Watch(Quitter, name="sim.Watch"):
        """Remembered: once it has run it runs, until it goes to rest."""

        settings = ShardingSettings(number_of_shards=3, remember_entities=True)

        @command
        def rest(self) -> tuple[int, str]:
            with seen(self):
                ends(self, "rest")
                self.context.passivate()
                return told(self)

    class Warden(Quitter, name=f"{SINGLETON}sim.Warden"):
        """A singleton: one for the whole cluster, started without a message, terminated when it is handed over."""

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
        """A singleton that needs a lease besides."""

        settings = ShardingSettings(
            number_of_shards=1, role=ROLE, passivate_after_seconds=0, stop_message=Quit(), use_lease=LEASE
        )


def _made(cls: type[Ledger]) -> EntityType:
    if cls._sharding_type is None:
        raise LookupError(f"{cls.__name__} is no type of entities")
    return cls._sharding_type


TYPES = (_made(Ledger), _made(Diary))
ENTITIES = tuple(
    (entity_type, f"{entity_type.cls.__name__.lower()}-{number}")
    for entity_type in TYPES
    for number in range(5)
)
"""(type, id) of everything that the clients talk to."""


def _singleton(entity_type: EntityType) -> EntityType:
    """Say of a type what `ClusterSingleton.start` says, without leaving its region among those of a real process."""
    entity_type.singleton_id = entity_type.name.removeprefix(SINGLETON)
    entity_type.waiting_limit = PROXY_BUFFER
    return entity_type


SNAPPED = TYPES[1]
TILL = _made(Till)
BOOKINGS = ("book", "book_only", "book_and_tell")
"""What users ask of a till."""
REMEMBERED, LEASED = _made(Watch), _made(Vault)
WARDEN, KEYHOLDER = _singleton(_made(Warden)), _singleton(_made(Keyholder))
