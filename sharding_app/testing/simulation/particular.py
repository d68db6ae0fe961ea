"""Types of entities with one property of their own each. Each seed has two of them (`cast`).

They note tokens as all others do, and are judged by these. The text of each class names the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING

from sharding_app.entities.base import DurableState
from sharding_app.entities.handlers import command
from sharding_app.entities.registry import registry
from sharding_app.entities.settings import ShardingSettings
from sharding_app.errors import Rejected, Unavailable, WrongContext
from sharding_app.protocol.call import Call
from sharding_app.protocol.supervision import Supervision
from sharding_app.runtime.base import call_chain
from sharding_app.testing.simulation import workload
from sharding_app.testing.simulation.stubborn import LONGEST_BACKOFF_SECONDS
from sharding_app.testing.simulation.workload import Book, Ledger, Watch, call_refused, made_of, seen, told

if TYPE_CHECKING:
    from sharding_app.testing.simulation.world import World

BAKES_SECONDS = 1.3
"""Longer than a hand-off waits."""
STALLS_SECONDS = 6.0
"""Longer than anything waits."""
HANDED_ON_SECONDS = 0.3
CROSSES_SECONDS = 0.5
RINGS_SECONDS = 0.6

# These classes are for virtual clusters only: a real process must not find them among its types.
with registry.isolated():

    class Slate(Book, DurableState, name="sim.Slate"):
        """Keeps its last state, and no events.

        A stored state lacks nothing that was stored before it.

        There is room for one of them in a node's memory: the other one has to leave it.
        """

        settings = ShardingSettings(number_of_shards=1, passivate_after_seconds=1.0, active_entity_limit=1)

        def keep(self, *tokens: str) -> Awaitable[None]:
            self.tokens += tokens
            return self.persist()

        @command
        def reject(self, token: str) -> int:
            with seen(self):
                self.keep(token)
                raise Rejected(f"not {token}", code="not_today")

    class Turnstile(Ledger, name="sim.Turnstile"):
        """Takes many commands at once: only the answer waits for the commit of the command
        before.
        """

        settings = ShardingSettings(
            number_of_shards=1,
            passivate_after_seconds=2.0,
            pipelined=True,
            snapshot_every=8,
            keep_snapshots=1,
        )

    class Kiln(Ledger, name="sim.Kiln"):
        """Has handlers that last longer than a hand-off waits.

        A handler that is given up has no effect any more, and its caller gets an error.
        """

        settings = ShardingSettings(number_of_shards=2, passivate_after_seconds=2.0)

        @command
        async def bake(self, token: str) -> int:
            with seen(self):
                await asyncio.sleep(BAKES_SECONDS)
                self.keep(token)
                return len(self.tokens)

        @command
        async def bake_in_steps(self, first: str, second: str) -> int:
            with seen(self):
                await self.keep(first)
                await asyncio.sleep(BAKES_SECONDS)
                self.keep(second)
                return len(self.tokens)

        @command
        async def bake_and_stall(self, first: str, second: str) -> int:
            with seen(self):
                await self.keep(first)
                await asyncio.sleep(STALLS_SECONDS)
                self.keep(second)
                return len(self.tokens)

    class Relay(Ledger, name="sim.Relay"):
        """Hands commands on to others and waits for them: its token comes after theirs.

        Each token is noted once. A circle is refused.
        """

        settings = ShardingSettings(number_of_shards=2, passivate_after_seconds=2.0)

        @command
        async def hand_on(self, way: list[str], tokens: list[str]) -> int:
            with seen(self):
                if way:
                    next_one = Relay.ref(way[0], command_id=f"relay-{tokens[1]}")
                    await next_one.hand_on(way[1:], tokens[1:])
                    await asyncio.sleep(HANDED_ON_SECONDS)
                self.keep(tokens[0])
                return len(self.tokens)

        @command
        async def go_round(self, by: str, token: str) -> int:
            with seen(self):
                return await Relay.ref(by).come_back(self.entity_id, token)

        @command
        async def come_back(self, to: str, token: str) -> int:
            with seen(self):
                try:
                    return await Relay.ref(to).add(token)
                except WrongContext as error:
                    call_refused(token, error)
                    raise

        @command
        async def cross(self, to: str, token: str) -> tuple[int, str]:
            """Call one that calls this one by a chain of its own: one of the two is refused."""
            with seen(self):
                await asyncio.sleep(CROSSES_SECONDS)
                try:
                    await Relay.ref(to).total()
                except Unavailable as error:
                    call_refused(token, error)
                    raise
                return told(self)

    class Alarm(Ledger, name="sim.Alarm"):
        """Rings when its time is over, unless it was set again, put off, or dropped before."""

        settings = ShardingSettings(number_of_shards=1, passivate_after_seconds=1.0)

        def __init__(self) -> None:
            super().__init__()
            if workload.observer is not None:
                workload.observer.timers.object_is_made(self)

        def start(self, token: str) -> None:
            if workload.observer is not None:
                token = workload.observer.timers.is_started(self, token, RINGS_SECONDS)
            self.context.start_timer("ring", RINGS_SECONDS, Alarm.ring, token)

        @command
        def set(self, token: str) -> tuple[int, str]:
            with seen(self):
                self.start(token)
                return told(self)

        @command
        def set_anew(self, first: str, second: str) -> tuple[int, str]:
            with seen(self):
                self.start(first)
                self.start(second)
                return told(self)

        @command
        def set_and_fail(self, token: str) -> None:
            with seen(self):
                self.start(token)
                self.keep(token)
                raise ZeroDivisionError(token)

        @command
        def set_badly(self, token: str) -> tuple[int, str]:
            """Start a command that fails, so that it does not repeat itself in a circle."""
            with seen(self):
                self.context.start_timer("bad", RINGS_SECONDS, Alarm.fail, token)
                return told(self)

        @command
        def put_off(self) -> tuple[int, str]:
            with seen(self):
                if self.context.cancel_timer("ring") and workload.observer is not None:
                    workload.observer.timers.is_put_off(self)
                return told(self)

        @command
        def ring(self, token: str) -> None:
            with seen(self):
                if workload.observer is not None:
                    workload.observer.timers.rings(self, token)
                self.keep(token)

    class Mule(Watch, name="sim.Mule"):
        """Remembered, and does not start while it is `stubborn`.

        Its callers get an error, it is tried again, and others run.
        """

        settings = ShardingSettings(
            number_of_shards=1,
            remember_entities=True,
            supervision=Supervision(max_backoff_seconds=LONGEST_BACKOFF_SECONDS),
        )

        def __init__(self) -> None:
            super().__init__()
            if workload.observer is not None:
                workload.observer.stubborn.starts(self.entity_id)


SLATE, TURNSTILE, KILN, RELAY, ALARM, MULE = map(made_of, (Slate, Turnstile, Kiln, Relay, Alarm, Mule))
WAY = tuple(f"relay-{number}" for number in range(3))
"""Always from an earlier one to a later one: two that call each other would wait for each other."""


def way_from(entity_id: str) -> tuple[str, ...]:
    """Return the relays through which this one hands on."""
    return WAY[WAY.index(entity_id) + 1 :]


PAIRS = ("relay-0", "relay-1"), ("relay-2", "relay-4")
"""Relays that call each other by chains of their own: of one shard, and of two."""
CROSSING = {one: other for pair in PAIRS for one, other in (pair, pair[::-1])}


class VirtualGateway:
    """The gateway of refs inside virtual processes, as far as handlers and users use it."""

    def __init__(self, world: World) -> None:
        self._world = world

    def ask(self, call: Call) -> Awaitable[bytes]:
        node = self._world.running_process()
        if node is None:
            raise Unavailable("this virtual process has not begun")
        call.chain = call_chain.chain()
        return node.ask(call)

    def ask_all(self, calls: Sequence[Call]) -> Sequence[Awaitable[bytes]]:
        return [self.ask(call) for call in calls]
