"""`Register`: an append-only list of tokens that answers with their number and a digest over them.

The digest depends on every token and on their order, so one answer shows whether any token was
lost, doubled or moved. Each event names the process that wrote it, so the journal shows the writers
of each epoch. Every handler first reports that it begins (`instances`). A register that is called
often also beats by a timer of its own, and so does `Ticker`, a singleton: an instance that should
be gone would show itself.

Importing this module registers nothing: the types exist only inside `only_torture_types`.
"""

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sharding_app import (
    ClusterSingleton,
    Entity,
    EventSourced,
    Rejected,
    ShardingSettings,
    SingletonProxy,
    applies,
    command,
    event,
    message,
    query,
)
from sharding_app.entities.registry import registry
from sharding_app.torture import instances
from sharding_app.torture.accounts import ACCOUNT
from sharding_app.torture.digest import EMPTY, after
from sharding_app.torture.withdrawn import withdrawn

TYPE = "sharding.TortureRegister"
TICKER = "sharding.torture"
SHARDS = 48
BEATING = 20
"The first N entities of a round, which are called most, beat."
BEAT_SECONDS = 0.5
TICK_SECONDS = 0.05


@event
class Appended:
    token: str
    writer: int


class Register(EventSourced, name=TYPE):
    """The tokens of a register, in two numbers."""

    count: int
    digest: int

    settings = ShardingSettings(number_of_shards=SHARDS, passivate_after_seconds=10)

    def __init__(self) -> None:
        self.count, self.digest = EMPTY
        self.number = instances.next_number()

    @command
    def append(self, token: str) -> list[int]:
        instances.handles(self, self.number)
        self._beats_on()
        self.persist(Appended(token, os.getpid()))
        return [self.count, self.digest]

    @command
    def refuse(self, token: str) -> list[int]:
        instances.handles(self, self.number)
        raise Rejected(f"never: {token}")

    @command
    async def append_late(self, token: str, seconds: float) -> list[int]:
        """Wait N seconds before anything is written."""
        instances.handles(self, self.number)
        await asyncio.sleep(seconds)
        self.persist(Appended(token, os.getpid()))
        return [self.count, self.digest]

    @command
    def stall(self, seconds: float) -> None:
        """Hold the whole event loop, as a careless handler would."""
        # Not `time.sleep`: it fails in a process whose clock libfaketime has stepped.
        threading.Event().wait(seconds)

    @command
    def swell(self, megabytes: int) -> int:
        """Allocate N megabytes of memory, for a moment."""
        return len(bytearray(megabytes << 20))

    @command
    def beat(self) -> None:
        """Show that this object is there. Called by a timer."""
        instances.handles(self, self.number)
        self._beats_on()

    @query
    def read(self) -> list[int]:
        instances.handles(self, self.number)
        return [self.count, self.digest]

    @query(fenced=True)
    def read_surely(self) -> list[int]:
        instances.handles(self, self.number)
        return [self.count, self.digest]

    @applies(Appended)
    def on_appended(self, happened: Appended) -> None:
        self.count, self.digest = after((self.count, self.digest), happened.token)

    def _beats_on(self) -> None:
        if int(self.entity_id.partition("e")[2] or BEATING) < BEATING:
            self.context.start_timer("beat", BEAT_SECONDS, type(self).beat)


@message
class Tick:
    """Begin to tick. The singleton goes on by itself then."""


class Ticker(Entity):
    """A singleton that handles a message at every tick."""

    def __init__(self) -> None:
        self.number = instances.next_number()

    async def receive(self, message: object) -> None:
        instances.handles(self, self.number)
        self.context.start_timer("tick", TICK_SECONDS, Tick())


REGISTER = withdrawn(Register)
withdrawn(Ticker)


@contextmanager
def only_torture_types() -> Iterator[SingletonProxy]:
    """Host only these types inside the block, none of the project's; yield the singleton's
    proxy.
    """
    with registry.isolated() as own:
        for known in own.all().values():
            own.discard(known)
        own.add(REGISTER)
        own.add(ACCOUNT)
        yield ClusterSingleton.start(TICKER, entity=Ticker)
