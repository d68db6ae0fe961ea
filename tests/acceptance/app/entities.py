"""`Register`: an append-only list of tokens that answers with how many there are and a digest over all of them.

The digest depends on every token and on their order, so one answer shows whether anything before it was lost, doubled
or moved. Each event names the process that wrote it, so the journal shows who wrote at which epoch. Every handler says
first that it begins (`instances`). A register that is called often also beats by a timer of its own, and so does `Ticker`,
a singleton: an instance that should be gone would show itself.
"""

import asyncio
import os
import threading
from zlib import crc32

from sharding_app import (
    Entity,
    EventSourced,
    Rejected,
    ShardingSettings,
    applies,
    command,
    event,
    message,
    query,
)
from tests.acceptance.app import instances

TYPE = "acceptance.Register"
TICKER = "acceptance.ticker"
BEATING = 20
"So many of a round's entities beat: those that are called most."
BEAT_SECONDS = 0.5
TICK_SECONDS = 0.05
EMPTY = (0, 0)


def after(state: tuple[int, int], token: str) -> tuple[int, int]:
    """Return what a register says once this token is appended to what it said before."""
    count, digest = state
    return count + 1, crc32(token.encode(), digest)


@event
class Appended:
    token: str
    writer: int


class Register(EventSourced):
    """What a register holds, told in two numbers."""

    count: int
    digest: int

    settings = ShardingSettings(role=os.environ.get("ACCEPTANCE_ROLE") or None)

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
        raise Rejected(f"never: {token}", code="never")

    @command
    async def append_late(self, token: str, seconds: float) -> list[int]:
        """Take so long before anything is written."""
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
        """Ask for so much memory, for a moment."""
        return len(bytearray(megabytes << 20))

    @command
    def beat(self) -> None:
        """A timer's: it shows that this object is there."""
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
            self.context.start_timer("beat", BEAT_SECONDS, Register.beat)


@message
class Tick:
    """Somebody wants the singleton to tick; it goes on by itself then."""


class Ticker(Entity):
    """A singleton that handles a message at every tick."""

    def __init__(self) -> None:
        self.number = instances.next_number()

    async def receive(self, message: object) -> None:
        instances.handles(self, self.number)
        self.context.start_timer("tick", TICK_SECONDS, Tick())
