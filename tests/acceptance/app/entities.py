"""`Register`: an append-only list of tokens that answers with how many there are and a digest over all of them.

The digest depends on every token and on their order, so one answer shows whether anything before it was lost, doubled
or moved. Each event names the process that wrote it, so the journal shows who wrote at which epoch.
"""

import asyncio
import os
import threading
from zlib import crc32

from sharding_app import EventSourced, Rejected, ShardingSettings, applies, command, event, query

TYPE = "acceptance.Register"
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

    @command
    def append(self, token: str) -> list[int]:
        self.persist(Appended(token, os.getpid()))
        return [self.count, self.digest]

    @command
    def refuse(self, token: str) -> list[int]:
        raise Rejected(f"never: {token}", code="never")

    @command
    async def append_late(self, token: str, seconds: float) -> list[int]:
        """Take so long before anything is written."""
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

    @query
    def read(self) -> list[int]:
        return [self.count, self.digest]

    @query(fenced=True)
    def read_surely(self) -> list[int]:
        return [self.count, self.digest]

    @applies(Appended)
    def on_appended(self, happened: Appended) -> None:
        self.count, self.digest = after((self.count, self.digest), happened.token)
