"""What the random histories are about: entities of every kind whose state is the list of the tokens
they were given.

Each command gets a token of its own, so that the journal tells which commands took effect, how
often and in which order. A reply is a short word for the whole state, so that any reply can be
compared with the fold of the journal.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from sharding_app import (
    DurableState,
    Entity,
    EventSourced,
    Rejected,
    ShardingSettings,
    applies,
    command,
    event,
    query,
)
from sharding_app.entities.registry import registry
from sharding_app.protocol.supervision import Supervision

SHARDS = 2
PAUSE_SECONDS = 0.05

PARTS = {
    "add": 1, "add_two": 2, "slowly": 1, "in_steps": 2, "slow_steps": 2, "step_then_fail": 1, "with_row": 1,
    "nothing": 0, "reject": 0, "fail": 0,
}  # fmt: skip
"""Commands, and how many parts of its token each adds."""
QUERIES = ("total", "total_slowly", "total_surely")

rows: list[str] = []
"""What `with_row` writes beside the journal: a user's table."""


def part(token: str, number: int) -> str:
    return f"{token}.{number}"


def said(tokens: Sequence[str]) -> str:
    """A word for a whole state: no other state has it."""
    return f"{len(tokens)}:{zlib.crc32('|'.join(tokens).encode())}"


def write_row(token: str) -> Callable[[], object]:
    return lambda: rows.append(token)


# These classes are for the clusters of these tests only: no other must find them among its types.
with registry.isolated():

    @event
    class Noted:
        token: str

    class Book(Entity):
        """What both kinds are asked; how they keep their tokens is their own."""

        abstract = True
        tokens: list[str]

        def __init__(self) -> None:
            self.tokens = []

        def keep(self, *parts: str, in_transaction: Callable[[], object] | None = None) -> Awaitable[None]:
            """Add these to the state; awaited: store it now."""
            raise NotImplementedError

        @command
        def add(self, token: str) -> str:
            self.keep(part(token, 1))
            return said(self.tokens)

        @command
        def add_two(self, token: str) -> str:
            self.keep(part(token, 1), part(token, 2))
            return said(self.tokens)

        @command
        async def slowly(self, token: str) -> str:
            await asyncio.sleep(PAUSE_SECONDS)
            self.keep(part(token, 1))
            return said(self.tokens)

        @command
        async def in_steps(self, token: str) -> str:
            await self.keep(part(token, 1))
            self.keep(part(token, 2))
            return said(self.tokens)

        @command
        async def slow_steps(self, token: str) -> str:
            await asyncio.sleep(PAUSE_SECONDS)
            await self.keep(part(token, 1))
            await asyncio.sleep(PAUSE_SECONDS)
            await self.keep(part(token, 2))
            return said(self.tokens)

        @command
        async def step_then_fail(self, token: str) -> str:
            await self.keep(part(token, 1))
            self.keep(part(token, 2))
            raise ZeroDivisionError(token)

        @command
        def with_row(self, token: str) -> str:
            self.keep(part(token, 1), in_transaction=write_row(part(token, 1)))
            return said(self.tokens)

        @command
        def nothing(self, token: str) -> str:
            return said(self.tokens)

        @command
        def reject(self, token: str) -> str:
            self.keep(part(token, 1))
            raise Rejected(f"not {token}")

        @command
        def fail(self, token: str) -> str:
            self.keep(part(token, 1))
            raise ZeroDivisionError(token)

        @query
        def total(self) -> str:
            return said(self.tokens)

        @query
        async def total_slowly(self) -> str:
            found = said(self.tokens)
            await asyncio.sleep(PAUSE_SECONDS)
            return found

        @query(fenced=True)
        def total_surely(self) -> str:
            return said(self.tokens)

    class Ledger(Book, EventSourced):
        """Keeps events."""

        abstract = True

        def keep(self, *parts: str, in_transaction: Callable[[], object] | None = None) -> Awaitable[None]:
            return self.persist(*map(Noted, parts), in_transaction=in_transaction)

        @applies(Noted)
        def on_noted(self, happened: Noted) -> None:
            self.tokens.append(happened.token)

    class Diary(Book, DurableState):
        """Keeps its last value."""

        abstract = True

        def keep(self, *parts: str, in_transaction: Callable[[], object] | None = None) -> Awaitable[None]:
            self.tokens += parts
            return self.persist(in_transaction=in_transaction)

    QUICK = ShardingSettings(number_of_shards=SHARDS, passivate_after_seconds=30.0, supervision=Supervision())

    def like(**more: Any) -> ShardingSettings:
        return ShardingSettings(**more).over(QUICK)

    class Plain(Ledger, name="properties.Plain"):
        settings = like()

    class Snapped(Ledger, name="properties.Snapped"):
        settings = like(snapshot_every=2, keep_snapshots=2)

    class Trimmed(Ledger, name="properties.Trimmed"):
        settings = like(snapshot_every=2, keep_snapshots=1, delete_events=True)

    class Hot(Ledger, name="properties.Hot"):
        settings = like(pipelined=True)

    class HotTrimmed(Ledger, name="properties.HotTrimmed"):
        settings = like(pipelined=True, snapshot_every=3, keep_snapshots=1, delete_events=True)

    class Value(Diary, name="properties.Value"):
        settings = like()

    class HotValue(Diary, name="properties.HotValue"):
        settings = like(pipelined=True)


Kind = type[Book]

KINDS: tuple[Kind, ...] = (Plain, Snapped, Trimmed, Hot, HotTrimmed, Value, HotValue)
