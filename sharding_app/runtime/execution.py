"""Running one command on one entity: decode, call, stage, commit, answer.

Contract: an answer that reports success goes out after the commit. A handler that raises journals nothing that is still
staged, and its object is thrown away and rebuilt if it had staged anything or failed in any other way than `Rejected`.
`run` says whether the command is over already; if not, the owner's `finished` or `reload` is called when it is.
"""

import asyncio
import functools
import logging
from collections import Counter
from collections.abc import Coroutine
from typing import Any, Protocol, cast

import msgspec

from sharding_app.core.ids import Incarnation
from sharding_app.core.messages import EXISTS, AnyMessage, Answer, Deliver, Failed, HandBack
from sharding_app.core.shard import Slot
from sharding_app.errors import (
    EntityFailed,
    NotStorable,
    PartlyApplied,
    Rejected,
    ShardingError,
    Unavailable,
    to_wire,
)
from sharding_app.model.staging import Record, Staging
from sharding_app.model.types import EntityType, Handler
from sharding_app.ports.journal import EventRow, Journal, JournalUnavailable, Outcome
from sharding_app.runtime.journal_writer import Commit, JournalWriter, NotCommitted

logger = logging.getLogger("sharding.entity")

RETRY_SECONDS = 0.1


class Owner(Protocol):
    """The host, as an execution sees it."""

    def send(self, target: Incarnation, message: AnyMessage) -> None: ...

    def done(self, target: Incarnation, request: int) -> None:
        """A tell is handled."""

    def finished(self, slot: Slot) -> None: ...

    def reload(self, slot: Slot) -> None: ...

    def fenced(self, slot: Slot) -> None:
        """The journal says that the slot's shard lives elsewhere."""

    async def lease(self) -> None:
        """Wait until this node may handle something."""
        ...

    def spawn(self, job: Coroutine[Any, Any, None]) -> None: ...

    async def at_home(self, slot: Slot) -> bool:
        """Ask the store whether the slot's shard is still at home here."""
        ...


class Watch(Protocol):
    """The watchdog's note of what holds the loop (`runtime.watchdog`)."""

    running: tuple[str, str] | None


class _CommandCommit(Commit):
    """The last commit of a command: answers, then lets the next one run."""

    __slots__ = ("execution", "message", "source", "value")

    def __init__(
        self,
        slot: Slot,
        rows: list[EventRow],
        execution: "Execution",
        source: Incarnation,
        message: Deliver,
        value: bytes,
    ) -> None:
        self.slot = slot
        self.generation = slot.generation
        self.rows = rows
        self.execution = execution
        self.source = source
        self.message = message
        self.value = value

    def resolved(self, why: NotCommitted | None, detail: str = "") -> None:
        if why is None:
            execution = self.execution
            execution.answer(self.source, self.message, self.value)
            if self.generation == self.slot.generation:
                execution.owner.finished(self.slot)
        else:
            self.execution.not_committed(self, why, detail)


class _StepCommit(Commit):
    """A commit in the middle of a command: the handler waits for it."""

    __slots__ = ("future",)

    def __init__(self, slot: Slot, rows: list[EventRow], future: "asyncio.Future[None]") -> None:
        super().__init__(slot, rows)
        self.future = future

    def resolved(self, why: NotCommitted | None, detail: str = "") -> None:
        if self.future.done():
            return
        if why is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(_StepFailed(why, detail))


class _StepFailed(Exception):
    def __init__(self, why: NotCommitted, detail: str) -> None:
        super().__init__(f"{why.value} {detail}")
        self.why = why
        self.detail = detail


class Execution:
    """Runs the commands of one type's entities in one process."""

    def __init__(
        self,
        entity_type: EntityType,
        type_id: int,
        writer: JournalWriter,
        journal: Journal,
        owner: Owner,
        watch: Watch,
        command_window_seconds: float,
    ) -> None:
        self.type = entity_type
        self.type_id = type_id
        self.owner = owner
        self.counters: Counter[str] = Counter()
        self._writer = writer
        self._journal = journal
        self._watch = watch
        self._window_ms = int(command_window_seconds * 1000)
        self._staging = Staging(self._commit_too_late)

    # -- One command -----------------------------------------------------------------------------------------------

    def run(self, slot: Slot, source: Incarnation, message: Deliver) -> bool:
        """Handle one envelope. True: it is over; False: it goes on, the slot stays busy."""
        handler = self.type.commands.get(message.command)
        try:
            if message.command == EXISTS:
                self.answer(source, message, b"1" if slot.seq else b"")
                return True
            if handler is None:
                self.type.handler(message.command)  # raises, naming what there is
            args = cast(Handler, handler).decode(message.args)
        except ShardingError as error:
            self.fail(source, message, error)
            return True
        assert handler is not None
        if message.command_id and not handler.is_query and self.type.kind != "memory":
            self.owner.spawn(self._run_again(slot, source, message, handler, args))
            return False
        return self._start(slot, source, message, handler, args)

    def _start(
        self, slot: Slot, source: Incarnation, message: Deliver, handler: Handler, args: tuple[Any, ...]
    ) -> bool:
        if handler.is_async or handler.thread or handler.fenced:
            self.owner.spawn(self._run_async(slot, source, message, handler, args))
            return False
        entity: Any = slot.entity
        staging = self._staging
        entity._sharding_staging = None if handler.is_query else staging
        self._watch.running = (self.type.name, handler.name)
        try:
            result = handler.function(entity, *args)
            if staging.broken is not None:
                raise staging.broken
            value = handler.encode_result(result)
        except Exception as error:
            staged = bool(staging.records) or staging.broken is not None
            staging.clear()
            return self._raised(slot, source, message, error, staged=staged)
        finally:
            self._watch.running = None
            entity._sharding_staging = None
        records = staging.records
        if not records:
            self.answer(source, message, value)
            return True
        staging.records = []
        self._commit(slot, source, message, records, value)
        return False

    def _commit(
        self, slot: Slot, source: Incarnation, message: Deliver, records: list[Record], value: bytes
    ) -> None:
        command_id = message.command_id or f"{source}:{message.request}"
        rows = self._rows(slot, records, command_id, message.command, value, partial=False)
        self._writer.put(_CommandCommit(slot, rows, self, source, message, value))

    def _rows(
        self,
        slot: Slot,
        records: list[Record],
        command_id: str,
        command: str,
        value: bytes | None,
        *,
        partial: bool,
    ) -> list[EventRow]:
        """Number the records; the last one carries what makes a retry safe."""
        shard = slot.shard
        type_id, entity, number, epoch, seq = self.type_id, slot.id, shard.number, shard.epoch, slot.seq
        rows = []
        for name, version, data, _ in records[:-1]:
            seq += 1
            rows.append(EventRow(type_id, entity, seq, number, epoch, name, version, data, None, None, None))
        name, version, data, _ = records[-1]
        slot.seq = seq = seq + 1
        rows.append(
            EventRow(
                type_id, entity, seq, number, epoch, name, version, data, command_id, command, value, partial
            )
        )
        return rows

    def _raised(
        self,
        slot: Slot,
        source: Incarnation,
        message: Deliver,
        error: Exception,
        *,
        staged: bool,
        partly: bool = False,
    ) -> bool:
        """Answer with the error; True if the object may stay."""
        kept = isinstance(error, Rejected | NotStorable) and not staged
        if isinstance(error, ShardingError) and not partly:
            self.fail(source, message, error)
        else:
            failed = self.type.failed(slot.id, message.command, error)
            if partly:
                failed = PartlyApplied(f"{failed.message}; what it had awaited stays", params=failed.params)
            if not isinstance(error, Rejected):
                self.counters["handler_failed"] += 1
                logger.error(
                    "%s.%s raised %s", self.type.name, message.command, type(error).__qualname__,
                    exc_info=error, extra={"action": "handler_failed", "entity_type": self.type.name},
                )  # fmt: skip
            self.fail(source, message, failed)
        if kept:
            return True
        self.owner.reload(slot)
        return False

    # -- Commands that wait ----------------------------------------------------------------------------------------

    async def _run_async(
        self, slot: Slot, source: Incarnation, message: Deliver, handler: Handler, args: tuple[Any, ...]
    ) -> None:
        entity: Any = slot.entity
        command_id = message.command_id or f"{source}:{message.request}"
        steps = 0

        async def commit_now(staging: Staging) -> None:
            nonlocal steps
            records, staging.records = staging.records, []
            if records:
                future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                rows = self._rows(slot, records, command_id, message.command, None, partial=True)
                self._writer.put(_StepCommit(slot, rows, future))
                await future
                steps += 1

        staging = Staging(commit_now)
        entity._sharding_staging = None if handler.is_query else staging
        generation = slot.generation
        try:
            await self.owner.lease()
            if generation != slot.generation:
                return
            if handler.thread:
                work = functools.partial(handler.function, entity, *args)
                result = await asyncio.get_running_loop().run_in_executor(None, work)
            elif handler.is_async:
                result = await handler.function(entity, *args)
            else:
                result = handler.function(entity, *args)
            if staging.broken is not None:
                raise staging.broken
            value = handler.encode_result(result)
        except _StepFailed as failed:
            if generation == slot.generation:
                self._step_failed(slot, source, message, failed, steps)
            return
        except Exception as error:
            if generation == slot.generation:
                staged = bool(staging.records) or staging.broken is not None
                if self._raised(slot, source, message, error, staged=staged, partly=steps > 0):
                    self.owner.finished(slot)
            return
        finally:
            entity._sharding_staging = None
        if generation != slot.generation:
            return
        if staging.records:
            self._commit(slot, source, message, staging.records, value)
            return
        if handler.fenced and not await self.owner.at_home(slot):
            if generation == slot.generation:
                self.hand_back(source, message)
                self.owner.fenced(slot)
            return
        self.answer(source, message, value)
        if generation == slot.generation:
            self.owner.finished(slot)

    async def _run_again(
        self, slot: Slot, source: Incarnation, message: Deliver, handler: Handler, args: tuple[Any, ...]
    ) -> None:
        """A command with an id of its own: look what an earlier attempt left in the journal before it runs."""
        generation = slot.generation
        found = await self._outcome(slot, message)
        await self.owner.lease()
        if generation != slot.generation:
            return
        if found is None:
            if self._start(slot, source, message, handler, args):
                self.owner.finished(slot)
            return
        self.counters["retried"] += 1
        if found.command != message.command:
            text = f"command id {message.command_id!r} was used for {found.command!r} before: give each command its own"
            self.fail(source, message, NotStorable(text, code="command_id_reused"))
        elif found.partial or found.reply is None:
            text = f"{self.type.name} {slot.id!r}: {message.command} had committed a part when its node died"
            self.fail(source, message, PartlyApplied(text))
        else:
            self.answer(source, message, found.reply)
        self.owner.finished(slot)

    async def _outcome(self, slot: Slot, message: Deliver) -> Outcome | None:
        """The window is the command id's, not this call's: its owner may have called before."""
        age_ms = message.age_ms + self._window_ms
        while True:
            try:
                return await self._journal.outcome(self.type_id, slot.id, message.command_id, age_ms)
            except JournalUnavailable:
                await asyncio.sleep(RETRY_SECONDS)

    def _step_failed(
        self, slot: Slot, source: Incarnation, message: Deliver, failed: _StepFailed, steps: int
    ) -> None:
        if failed.why is NotCommitted.FENCED and not steps:
            self.hand_back(source, message)
            self.owner.fenced(slot)
            return
        self.fail(source, message, self._refusal(slot, message, failed.why, failed.detail, partly=steps > 0))
        if failed.why is NotCommitted.FENCED:
            self.owner.fenced(slot)
        else:
            self.owner.reload(slot)

    async def _commit_too_late(self, staging: Staging) -> None:
        raise NotStorable(
            "await self.persist(...) needs an `async def` handler: in a `def` it is stored at the return"
        )

    # -- Outcomes --------------------------------------------------------------------------------------------------

    def answer(self, source: Incarnation, message: Deliver, value: bytes) -> None:
        if message.timeout_ms:
            self.owner.send(source, Answer(message.request, value))
        else:
            self.owner.done(source, message.request)

    def fail(self, source: Incarnation, message: Deliver, error: ShardingError) -> None:
        kind, text, params = to_wire(error)
        self.owner.send(
            source, Failed(message.request, kind, text, msgspec.msgpack.encode(params) if params else b"")
        )

    def hand_back(self, source: Incarnation, message: Deliver) -> None:
        self.owner.send(source, HandBack(message.type, message.shard, message.epoch, [message.request]))

    def not_committed(self, commit: _CommandCommit, why: NotCommitted, detail: str) -> None:
        slot = commit.slot
        current = commit.generation == slot.generation
        if why is NotCommitted.FENCED:
            self.hand_back(commit.source, commit.message)
            if current:
                self.owner.fenced(slot)
            return
        self.fail(commit.source, commit.message, self._refusal(slot, commit.message, why, detail))
        if current:
            self.owner.reload(slot)

    def _refusal(
        self, slot: Slot, message: Deliver, why: NotCommitted, detail: str, *, partly: bool = False
    ) -> ShardingError:
        what = f"{self.type.name} {slot.id!r}: {message.command}"
        self.counters[f"not_committed_{why.value}"] += 1
        if partly:
            return PartlyApplied(f"{what} had committed a part; the rest was {why.value} {detail}".rstrip())
        if why is NotCommitted.REFUSED:
            return NotStorable(f"{what}: Postgres refused its events: {detail}")
        if why is NotCommitted.SUPERSEDED:
            return Unavailable(
                f"{what}: an earlier commit of this entity failed; nothing of this one is stored"
            )
        return EntityFailed(f"{what}: its shard moved before it was stored")
