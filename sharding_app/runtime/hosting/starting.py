"""What an entity does when it has come into memory: its `@on_start` methods, and the timers of a
singleton's `@every`.

`@on_start` methods run before the first message, whenever an instance is made. If one raises, the
entity does not start, as if it could not be recovered. The timers are rows like those of a command;
they are compared with the class at each start, and stored only if they differ. Those that an
earlier release has stored, and that the class has no more, are ended.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from inspect import isawaitable
from typing import Any, Protocol

from sharding_app.entities.entity_type import EntityType
from sharding_app.ports.deliveries import MessageChanges, MessageRow, TimerKey
from sharding_app.ports.journal import Journal, JournalUnavailable, ShardsFenced
from sharding_app.protocol.delivery.recurrence import first
from sharding_app.runtime.base import call_chain
from sharding_app.runtime.base.interfaces import RAISED, ends_job
from sharding_app.runtime.base.threads import Threads
from sharding_app.runtime.execution.execution import Execution
from sharding_app.runtime.journal.commits import Resident, ResidentShard

logger = logging.getLogger("sharding.region")

EVERY = "?every:"
"""Begins the keys of these timers. No key of a user's begins with a question mark."""
RETRY_SECONDS = 1.0


class StartingHost(Protocol):
    """The host of a type, as the start of its entities needs it."""

    type: EntityType
    journal: Journal
    threads: Threads
    closing: bool
    execution: Execution
    storing: Callable[[MessageChanges], AbstractContextManager[None]]

    def spawn(self, job: Coroutine[Any, Any, None]) -> None: ...

    def staged(self, slot: Resident, changes: MessageChanges, at: Any) -> None: ...

    def new_message_id(self) -> str: ...

    async def lease(self) -> None: ...

    def fenced_shard(self, shard: ResidentShard) -> None: ...


class Starting:
    def __init__(self, host: StartingHost) -> None:
        self._host = host
        self._keeping = asyncio.Lock()

    async def run_methods(self, slot: Resident) -> BaseException | None:
        """Run the `@on_start` methods of a new instance; return the error of one that raised."""
        host, entity, task = self._host, slot.entity, asyncio.current_task()
        try:
            with call_chain.within((), host.type.name, slot.id), host.threads.around(0):
                for method in host.type.on_start:
                    result = method(entity)
                    if isawaitable(result):
                        await result
        except RAISED as error:
            if ends_job(error, task, cancelled=host.closing):
                raise
            return error
        return None

    async def keep_timers_again(self, slot: Resident) -> None:
        """Store timers that the server may have lost, once the node's lease is back."""
        await self._host.lease()
        await self.keep_timers(slot)

    async def keep_timers(self, slot: Resident) -> None:
        """Store the timers of `@every` that are missing or differ; cancel those that are no
        more.

        One start does it after the other. A command that fails has its entity started again, maybe
        while the first start still stores the timers. A start that read before they are there would
        set them anew.
        """
        while not (slot.is_gone or slot.shard.stopping):
            try:
                async with self._keeping:
                    await self._keep(slot)
            except JournalUnavailable:
                await asyncio.sleep(RETRY_SECONDS)
            except ShardsFenced:
                # Its next home does it. That may be this one again: a failover of a further journal
                # loses that the shard was taken.
                self._host.fenced_shard(slot.shard)
                return
            else:
                return

    async def _keep(self, slot: Resident) -> None:
        host, shard = self._host, slot.shard
        type_id = host.execution.type_id
        now, stored = await host.journal.timers(type_id, slot.id, EVERY)
        rows: list[MessageRow] = []
        for command, spec in host.type.recurring.items():
            if stored.pop(EVERY + command, None) == spec.encode():
                continue
            rows.append(
                MessageRow(
                    host.new_message_id(), type_id, shard.number, slot.id, shard.epoch, slot.seq, len(rows),
                    host.type.name, slot.id, command, host.type.commands[command].encode((), {}),
                    first(spec, now), key=EVERY + command, every=spec.encode(),
                )
            )  # fmt: skip
        cancels: list[TimerKey] = [(type_id, slot.id, key) for key in stored]
        if rows or cancels:
            claim = type_id, shard.number, shard.epoch
            changes = MessageChanges(rows, cancels)
            at = None  # without an answer they may be stored all the same: they are read
            try:
                with host.storing(changes):
                    at = await host.journal.stage(rows, cancels, claim=claim)
            finally:
                host.staged(slot, changes, at)
