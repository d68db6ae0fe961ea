"""Commands that wait for something in between: async handlers, handlers in a thread, shared transactions.

While one waits, its entity handles nothing else. When its object is thrown away meanwhile (the shard moved, a commit
failed), whatever it still does is without effect, and its asker is told: by handing the command back if nothing of it is
stored, else by `PartlyApplied`.
"""

import asyncio
import contextlib
import contextvars
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from sharding_app.core.command_ids import id_of_ours
from sharding_app.core.ids import Incarnation
from sharding_app.core.messages import Deliver
from sharding_app.core.shard import Slot
from sharding_app.errors import WrongContext
from sharding_app.model.event_codec import FINISHED
from sharding_app.model.handler import Handler
from sharding_app.model.staging import Record, Staging
from sharding_app.ports.journal import EventRow, JournalUnavailable, RowRefused, ShardsFenced
from sharding_app.runtime.calls import within
from sharding_app.runtime.commits import CommandCommit, StepCommit, StepFailed, number_rows
from sharding_app.runtime.journal_writer import NotCommitted
from sharding_app.runtime.owner import RAISED, Together, ends_job
from sharding_app.runtime.threads import depth_of

if TYPE_CHECKING:
    from sharding_app.runtime.execution import Execution


T = TypeVar("T")


class WaitingCommands:
    def __init__(self, execution: "Execution", together: Together | None) -> None:
        self._execution = execution
        self._together = together
        self._running: dict[Slot, _Command] = {}

    def give_up(self, slot: Slot) -> "_Command | None":
        """Forget the command that an entity handles now, and return it: whatever becomes of it, nothing more is said."""
        command = self._running.pop(slot, None)
        if command is not None:
            command.given_up = True
        return command

    def outdate(self, slot: Slot, then: Callable[[], None]) -> bool:
        """Let nothing more be stored of the command whose handler runs now, and call `then` when the handler has ended: until
        then nothing else may run in its entity. False: no handler runs."""
        command = self._running.get(slot)
        if command is None:
            return False
        slot.generation += 1
        command.then = then
        return True

    async def run(
        self,
        slot: Slot,
        generation: int,
        source: Incarnation,
        message: Deliver,
        handler: Handler,
        args: tuple[Any, ...],
    ) -> None:
        """Run a handler that may wait. `generation` is the slot's when this was decided: it may be another one already."""
        execution, owner = self._execution, self._execution.owner
        await owner.lease()
        if generation != slot.generation:
            execution.answers.abandoned(slot, source, message, partly=False)
            return
        if not owner.may_begin(slot.shard):
            execution.too_late(slot, source, message)
            return
        entity: Any = slot.entity
        command = self._running[slot] = _Command(self, slot, generation, source, message)
        task = asyncio.current_task()
        try:
            entity._sharding_staging = None if handler.is_query else command.staging
            with within(message.chain, execution.type.name, slot.id):
                result = await self._call(handler, entity, args, depth_of(message.chain))
            await command.at_rest()
            if command.given_up:
                return
            value = command.staged(handler, result)
        except RAISED as error:
            if ends_job(error, task, cancelled=owner.closing):
                raise
            await command.at_rest()
            if not command.given_up:
                command.failed(error)
            return
        finally:
            command.over = True
            with contextlib.suppress(BaseException):  # the user's class may refuse to be written to
                entity._sharding_staging = None
            if self._running.get(slot) is command:
                del self._running[slot]
            if command.then is not None:
                command.then()
        if generation != slot.generation:
            execution.answers.abandoned(slot, source, message, partly=command.steps > 0, ran=True)
        else:
            await self._conclude(command, handler, value)

    async def _conclude(self, command: "_Command", handler: Handler, value: bytes) -> None:
        """The handler has returned: store what it has staged last, and answer."""
        execution, slot = self._execution, command.slot
        source, message, staging = command.source, command.message, command.staging
        partly = command.steps > 0
        if (partly or staging.also) and not staging.records:
            staging.records = [self._last_word(slot)]
        if staging.also:
            await self.finish_together(
                slot, command.generation, source, message, staging, value, partly=partly
            )
        elif staging.records:
            if execution.commit(slot, source, message, staging.records, value, partly=partly):
                execution.owner.finished(slot)
        else:
            await self._answer(slot, source, message, handler, value)

    async def finish_together(
        self,
        slot: Slot,
        generation: int,
        source: Incarnation,
        message: Deliver,
        staging: Staging,
        value: bytes,
        *,
        partly: bool = False,
    ) -> None:
        """The last commit of a command, in one transaction with the user's own writes."""
        execution = self._execution
        if generation != slot.generation:
            execution.answers.abandoned(slot, source, message, partly=partly)
            return
        command_id = message.command_id or id_of_ours(source, message.request)
        records = staging.records or [self._last_word(slot)]
        rows = number_rows(
            execution.type_id, slot, records, command_id, execution.said(message), value, partial=False
        )
        execution.retries.note(slot, message)
        commit = CommandCommit(slot, rows, execution, source, message, value)
        commit.partly = partly
        commit.snapshot = execution.snapshots.due(slot, records[-1])
        task = asyncio.current_task()
        try:
            await self.append_together(slot, rows, staging.also)
        except StepFailed as failed:
            execution.not_committed(commit, failed.why, failed.detail)
        except RAISED as error:
            if ends_job(error, task, cancelled=execution.owner.closing):
                raise
            if generation == slot.generation:
                execution.failing.raised(slot, source, message, error, staged=True, partly=partly)
            else:
                execution.answers.abandoned(slot, source, message, partly=partly)
        else:
            execution.committed(commit)

    async def _call(self, handler: Handler, entity: object, args: tuple[Any, ...], depth: int) -> Any:
        owner = self._execution.owner
        if handler.thread:
            work = functools.partial(contextvars.copy_context().run, handler.function, entity, *args)
            pool = owner.threads.executor(depth)
            return await asyncio.get_running_loop().run_in_executor(pool, owner.threads.run, sendable(work))
        if handler.is_async:
            with owner.threads.around(depth):
                return await handler.function(entity, *args)
        return handler.function(entity, *args)

    async def append_together(
        self, slot: Slot, rows: Sequence[EventRow], functions: Sequence[Callable[[], object]]
    ) -> None:
        if self._together is None:
            raise WrongContext("persist(..., also=...) needs the real cluster: there is no database here")
        generation = slot.generation
        await settled(slot)
        if generation != slot.generation:
            raise StepFailed(NotCommitted.SUPERSEDED)
        try:
            await self._together(rows, [sendable(each) for each in functions])
        except JournalUnavailable as lost:
            raise StepFailed(NotCommitted.UNAVAILABLE, str(lost)) from lost
        except ShardsFenced as fenced:
            raise StepFailed(NotCommitted.FENCED) from fenced
        except RowRefused as refused:
            raise StepFailed(NotCommitted.REFUSED, refused.reason) from refused

    async def _answer(
        self, slot: Slot, source: Incarnation, message: Deliver, handler: Handler, value: bytes
    ) -> None:
        execution, owner = self._execution, self._execution.owner
        generation = slot.generation
        if handler.fenced and not await owner.at_home(slot):
            execution.answers.hand_back(source, message)
            if generation == slot.generation:
                owner.fenced(slot)
            return
        if generation != slot.generation:
            execution.answers.abandoned(slot, source, message, partly=False)
            return
        execution.answers.answer_seen(slot, source, message, value)
        owner.finished(slot)

    def _last_word(self, slot: Slot) -> Record:
        """A command that stages no event last still leaves a record: it holds the reply for a retry, and the fence looks
        at it. A transaction of the user's rows alone would be bound by neither."""
        durable = self._execution.durable
        if durable is not None:
            return durable.record(slot)
        return FINISHED, 1, b"{}", None

    def step(
        self, slot: Slot, source: Incarnation, message: Deliver, staging: Staging
    ) -> asyncio.Future[None] | None:
        """`await self.persist(...)`: begin to make durable what is staged so far. None: there is nothing."""
        execution = self._execution
        if execution.durable is not None:
            execution.durable.stage(slot, staging)
        records: list[Record]
        records, staging.records = staging.records, []
        also, staging.also = staging.also, []
        if not records and not also:
            return None
        execution.retries.note(slot, message)
        command_id = message.command_id or id_of_ours(source, message.request)
        records = records or [self._last_word(slot)]
        rows = number_rows(
            execution.type_id, slot, records, command_id, execution.said(message), None, partial=True
        )
        if also:
            return asyncio.ensure_future(self.append_together(slot, rows, also))
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        execution.writer.put(StepCommit(slot, rows, future))
        return future


class _Command:
    """One command under way: what it has staged, and how often it has committed."""

    def __init__(
        self,
        commands: WaitingCommands,
        slot: Slot,
        generation: int,
        source: Incarnation,
        message: Deliver,
    ) -> None:
        self.steps = 0
        self.under_way: asyncio.Future[None] | None = None
        "A commit whose outcome is not known yet."
        self.over = False
        "Its handler has returned: nothing more can be staged or committed for it."
        self.generation = generation
        "The slot's when it began: once that is another one, its object is thrown away."
        self.given_up = False
        self.then: Callable[[], None] | None = None
        "What waits for the end of the handler."
        self.source = source
        self.message = message
        self.staging = Staging(self._commit_now)
        self.slot = slot
        self._commands = commands

    @property
    def in_doubt(self) -> bool:
        return self.under_way is not None

    async def at_rest(self) -> None:
        """Wait until no commit is under way: one that a task of the handler's awaits may outlast the handler."""
        while (under_way := self.under_way) is not None:
            await asyncio.wait((under_way,))
            await asyncio.sleep(0)

    def staged(self, handler: Handler, result: object) -> bytes:
        """The encoded result, once everything is found to be in order that is to be stored with it."""
        execution, slot, staging = self._commands._execution, self.slot, self.staging
        if staging.broken is not None:
            raise staging.broken
        value = handler.encode_result(result)
        current = self.generation == slot.generation
        if execution.durable is not None and not handler.is_query and current:
            execution.durable.stage(slot, staging)
        if staging.records and len(value) > execution.max_reply:
            raise execution.reply_too_large(self.message, value)
        return value

    async def _commit_now(self, staging: Staging) -> None:
        if self.over:
            name = self.message.command
            raise WrongContext(f"{name} is over: await self.persist(...) before the handler returns")
        if staging.broken is not None:
            raise staging.broken
        try:
            if self.generation != self.slot.generation:
                raise StepFailed(NotCommitted.SUPERSEDED)
            under_way = self._commands.step(self.slot, self.source, self.message, staging)
            cancelled = None if under_way is None else await self._outcome(under_way)
        except BaseException as error:
            # The object is ahead of the journal now: whatever the handler makes of this, its command fails.
            staging.broken = error if isinstance(error, Exception) else StepFailed(NotCommitted.SUPERSEDED)
            raise
        if cancelled is not None:
            raise cancelled

    async def _outcome(self, under_way: asyncio.Future[None]) -> asyncio.CancelledError | None:
        """Wait until it is committed; raises why it is not. A handler that is cancelled meanwhile, by a timeout of its own
        for one, goes on when that is known, and not before: what is committed then cannot be called back."""
        cancelled: asyncio.CancelledError | None = None
        self.under_way = under_way
        under_way.add_done_callback(self._is_known)
        while True:
            try:
                await asyncio.shield(under_way)
            except asyncio.CancelledError as error:
                if under_way.cancelled():
                    raise  # a function of the user's has raised it
                if self._commands._execution.owner.closing:
                    under_way.cancel()
                    raise
                cancelled = error
            else:
                return cancelled

    def _is_known(self, under_way: asyncio.Future[None]) -> None:
        if self.under_way is under_way:
            self.under_way = None
        self.steps += not under_way.cancelled() and under_way.exception() is None

    def failed(self, error: BaseException) -> None:
        execution, slot = self._commands._execution, self.slot
        partly = self.steps > 0
        if isinstance(self.staging.broken, StepFailed):
            error = self.staging.broken
        if self.generation != slot.generation:
            execution.answers.abandoned(slot, self.source, self.message, partly=partly, ran=True)
        elif not isinstance(error, StepFailed):
            staged = bool(self.staging.records) or self.staging.broken is not None or partly
            if execution.failing.raised(slot, self.source, self.message, error, staged=staged, partly=partly):
                execution.owner.finished(slot)
        elif error.why is NotCommitted.FENCED:
            execution.owner.fenced(slot)
            execution.answers.abandoned(slot, self.source, self.message, partly=partly)
        else:
            failure = execution.answers.refusal(slot, self.message, error.why, error.detail, partly=partly)
            execution.answers.fail(self.source, self.message, failure)
            execution.owner.reload(slot)


class Escaped(RuntimeError):
    """Stands for what was raised in a thread and no future may carry."""

    speaks_for_itself = True


def sendable(work: Callable[[], T]) -> Callable[[], T]:
    """Let what a function in a thread raises reach its waiter: a future does not take a StopIteration, and on its way
    through tasks a SystemExit would end the loop."""

    def run() -> T:
        try:
            return work()
        except StopIteration as error:
            raise Escaped("StopIteration was raised") from error
        except (Exception, asyncio.CancelledError):
            raise
        except BaseException as error:
            raise Escaped(f"{type(error).__qualname__} was raised") from error

    return run


def is_gone(slot: Slot) -> bool:
    """Whether the entity is not at home here any more (or not in memory)."""
    return slot.shard.slots.get(slot.id) is not slot


async def settled(slot: Slot) -> None:
    """Wait until no commit of the entity is under way."""
    tail = slot.tail
    if isinstance(tail, CommandCommit):
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        tail.follow(lambda _: None if future.done() else future.set_result(None))
        await future
