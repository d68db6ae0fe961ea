"""One command on one entity, from its turn in the mailbox to its reply.

    READY ──id of the caller's──> ASKING ──no earlier attempt──> READY
      │                             └──known, or put back──> OVER
      │                             ┌──by force──> GIVEN_UP ──handler ends──> OVER
      └──handler begins──> RUNNING ─┤
                                    └──handler ends──> ENDED ──replied──> OVER
                                                         └──records──> COMMITTING ──replied──> OVER

Contract: a reply that depends on an entity's state goes out after all commits that made this state.
A handler that raises stores nothing that is still staged. Its object is rebuilt if it had staged
anything; otherwise the type's supervision decides. `start` says whether the entity may go on
to its next envelope. If not, the owner's `finished` or `reload` is called when it may.

A command of which nothing is stored, and whose entity has moved, is handed back. A command of which
a part is stored has failed. A second reply to a command raises.

Async handlers, handlers in a thread and fenced queries *wait*: they run in a job of their own, and
their entity handles nothing else in that time. If its object is dropped (the shard moved, a commit
failed), the rest of the handler has no effect.

A *pipelined* type goes on while its commit is under way. Answers of later commands and queries then
wait for the commits whose state they have seen. If one fails, all behind it fail, and the object is
rebuilt first. A handler of it that still runs ends before that.
"""

import asyncio
import contextlib
import contextvars
import functools
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from enum import IntEnum
from typing import Any, cast

from sharding_app.entities.entity_type import EntityType, Handler
from sharding_app.entities.event_codec import FINISHED
from sharding_app.entities.staging import Record, Staging, refuse_too_large
from sharding_app.errors import NotSerializable, Rejected, ShardingError, WrongContext
from sharding_app.ports.deliveries import MessageChanges, MessagesGone, Taking
from sharding_app.ports.journal import (
    EventRow,
    Journal,
    JournalUnavailable,
    Outcome,
    RowRefused,
    ShardsFenced,
)
from sharding_app.protocol.builtin_commands import MESSAGE
from sharding_app.protocol.command_ids import id_of_ours
from sharding_app.protocol.delivery import outcome
from sharding_app.protocol.ids import Incarnation, ShardId
from sharding_app.protocol.messages import Deliver
from sharding_app.protocol.transitions import transitions
from sharding_app.runtime.base import call_chain
from sharding_app.runtime.base.interfaces import NO_CALLER, RAISED, Together, Watch, ends_job
from sharding_app.runtime.base.sizes import reply_not_kept
from sharding_app.runtime.base.threads import depth_of, sendable
from sharding_app.runtime.execution.context import close_context
from sharding_app.runtime.execution.earlier_attempts import EarlierAttempts, as_stored
from sharding_app.runtime.execution.failures import HandlerFailures
from sharding_app.runtime.execution.foreign import ForeignMessages
from sharding_app.runtime.execution.message_changes import (
    changes_messages,
    ends_own_timer,
    message_changes,
    needs_time,
    reply_args,
    reply_row,
    run_after_commit,
)
from sharding_app.runtime.execution.message_handler import MessageHandler
from sharding_app.runtime.execution.owner import Owner
from sharding_app.runtime.execution.replies import Replies
from sharding_app.runtime.execution.state_guard import StateGuard
from sharding_app.runtime.journal.commits import (
    Commit,
    LastCommit,
    NotCommitted,
    Resident,
    StepCommit,
    StepFailed,
    number_rows,
    why_refused,
    why_taken,
)
from sharding_app.runtime.journal.durable_state import DurableState
from sharding_app.runtime.journal.retention import Retention
from sharding_app.runtime.journal.snapshots import Snapshots
from sharding_app.runtime.journal.writer import JournalWriter
from sharding_app.runtime.telemetry.meter import Meter

DONE = outcome.encode(outcome.DONE)
TAKEN = outcome.encode(outcome.TAKEN)
GONE = outcome.encode(outcome.GONE)
RETRY_SECONDS = 0.1


class Phase(IntEnum):
    READY = 0
    "It has its turn, and its handler has not begun."
    ASKING = 1
    "The journal is asked for an earlier attempt."
    RUNNING = 2
    ENDED = 3
    "Its handler has returned or raised: it can stage nothing more."
    COMMITTING = 4
    "Its last records are on their way to the journal."
    GIVEN_UP = 5
    "Its caller got an error, and its handler still runs: its shard had to move."
    OVER = 6


READY, ASKING, RUNNING, ENDED, COMMITTING, GIVEN_UP, OVER = Phase

PHASES = transitions(
    "command",
    {
        READY: [ASKING, RUNNING, OVER],
        ASKING: [READY, OVER],
        RUNNING: [ENDED, GIVEN_UP],
        ENDED: [COMMITTING, OVER],
        COMMITTING: [OVER],
        GIVEN_UP: [OVER],
        OVER: [],
    },
)


class Command(LastCommit):
    """One command on one entity. It is its own last commit."""

    phase: Phase = READY
    value: bytes = b""
    "The encoded result."
    steps = 0
    "Commits of `await self.persist(...)` so far: a command with some cannot be handed back."
    timer_is_over = False
    "One of its commits in the middle has cancelled the timer that it comes from, or set it anew."
    step_under_way: asyncio.Future[datetime | None] | None = None
    "One of those whose outcome is not known yet."
    overlapping = False
    "Pipelined: the next command runs while this one is committed."
    snapshot = False
    "A snapshot is due after its commit."
    then: Callable[[], None] | None = None
    "Called at the end of the handler: the object is out of date."
    elsewhere = False
    "A fenced query: its shard has another home, or has gone."
    began = 0.0
    "When a handler that may wait has begun, or a transaction with rows of the user."
    writes_rows = False
    "A transaction with rows of the user is under way."
    staged: Staging | None = None
    "Set for a command that changes messages, or that something follows."
    reply: bytes | None = None
    "The arguments of the command that the sender of a durable message wants the result as."
    foreign: str | None = None
    "The journal in which the row of its message lies, if that is not its entity's."

    def __init__(self, services: "Services", slot: Resident, source: Incarnation, message: Deliver) -> None:
        self.services = services
        self.slot = slot
        self.generation = slot.generation
        self.rows = ()
        self.source = source
        self.message = message

    def is_current(self) -> bool:
        """Whether its object is still the entity's."""
        return self.generation == self.slot.generation

    @property
    def is_over(self) -> bool:
        """Whether nothing more of it can be committed."""
        return self.phase is OVER

    # -- An earlier attempt ------------------------------------------------------------------------

    def ask(self, handler: Handler, args: tuple[Any, ...]) -> None:
        """Ask the journal for an earlier attempt; then start, or repeat the reply."""
        self.phase = PHASES[self.phase][ASKING]
        self.services.waiting[self.slot] = self
        self.services.owner.spawn(self._unless_broken(self._ask, handler, args))

    async def _ask(self, handler: Handler, args: tuple[Any, ...]) -> None:
        services, slot, message = self.services, self.slot, self.message
        owner, earlier_attempts = services.owner, services.earlier_attempts
        if self._was_dropped():
            return
        if earlier_attempts.is_too_old(message):
            del services.waiting[slot]
            self.refuse(earlier_attempts.too_old(message))
            owner.finished(slot)
            return
        await slot.commits_settled()
        found = await earlier_attempts.outcome(slot, message)
        overtaken = found is None and await earlier_attempts.is_overtaken(slot, self.source, message)
        await owner.lease()
        if self._was_dropped():
            return
        del services.waiting[slot]
        if not owner.may_begin(slot.shard):
            self._too_late()
        elif found is not None:
            self._repeat(found, handler)
            owner.finished(slot)
        elif overtaken:
            self.refuse(services.replies.overtaken(message))
            owner.finished(slot)
        else:
            self.phase = PHASES[self.phase][READY]
            if self.start(handler, args):
                owner.finished(slot)

    def deliver(self, handler: Handler, args: tuple[Any, ...]) -> bool:
        """Begin a durable message or timer: its row tells whether it has taken effect. As `start`.

        If the row lies in another journal, that is asked whether it waits there.
        """
        foreign = self.services.foreign
        journal = None if foreign is None else foreign.journal_of(self.message)
        if foreign is None or journal is None:
            return self.start(handler, args)
        self.foreign = journal
        self.phase = PHASES[self.phase][ASKING]
        self.services.waiting[self.slot] = self
        foreign.hold(self)
        self.services.owner.spawn(self._unless_broken(self._look, foreign, journal, handler, args))
        return False

    async def _look(
        self, foreign: ForeignMessages, journal: str, handler: Handler, args: tuple[Any, ...]
    ) -> None:
        services, slot = self.services, self.slot
        owner = services.owner
        if self._was_dropped():
            return
        found = await foreign.look(self.message, journal)
        await owner.lease()
        if self._was_dropped():
            return
        del services.waiting[slot]
        if not owner.may_begin(slot.shard):
            self._too_late()
            return
        self.phase = PHASES[self.phase][READY]
        if isinstance(found, ShardingError):
            self.refuse(found)
        elif found is not None:
            self._was_taken(found.seconds)
        elif not self.start(handler, args):
            return
        owner.finished(slot)

    def _repeat(self, found: Outcome, handler: Handler) -> None:
        """Reply as the earlier attempt did."""
        self.services.counters["retried"] += 1
        error = self.services.earlier_attempts.mismatch(self.slot, self.message, found, handler)
        if error is not None:
            self.fail(error)
        else:
            self.value = found.reply or b""
            self.answer()

    def _was_dropped(self) -> bool:
        """Whether its object was dropped. The command was put back then, or is now."""
        if self.is_current():
            return False
        if self.services.waiting.get(self.slot) is self:
            self.put_back()
        return True

    def put_back(self) -> None:
        """Run the command later: its object was dropped before the outcome was known.

        An earlier attempt may have committed, so "nothing is stored" would be wrong. The command
        waits for the next object, or goes to its shard's next home.
        """
        slot = self.slot
        del self.services.waiting[slot]
        if slot.is_gone or slot.shard.stopping:
            self.hand_back()
        else:
            self.phase = PHASES[self.phase][OVER]
            self.services.owner.again(slot, self.source, self.message)

    # -- The handler -------------------------------------------------------------------------------

    def start(self, handler: Handler, args: tuple[Any, ...]) -> bool:
        """Begin the handler. True: the entity may go on; False: it stays busy with this command."""
        services, slot, message = self.services, self.slot, self.message
        if handler.is_async or handler.thread or handler.fenced:
            services.owner.spawn(self._run_waiting(handler, args))
            return False
        entity: Any = slot.entity
        staging = services.staging
        entity._sharding_staging = None if handler.is_query else staging
        self.phase = PHASES[self.phase][RUNNING]
        services.watch.running = (message.type, handler.name)
        token = call_chain.enter((message.chain, message.type, slot.id))
        try:
            result = handler.function(entity, *args)
            self.value = self._encoded(handler, result, staging)
            self.phase = PHASES[self.phase][ENDED]
        except RAISED as error:
            self.phase = PHASES[self.phase][ENDED]
            staged = bool(staging.records) or staging.broken is not None
            staging.clear()
            return self._raised(error, staged=staged)
        finally:
            call_chain.leave(token)
            services.watch.running = None
            entity._sharding_staging = None
        if (
            message.delivery is not None or staging.messages or staging.cancelled or staging.after_commit
        ):  # as `changes_messages`, without a call
            services.staging = Staging(commit_too_late)
            return self._store_messages(staging)
        if staging.in_transaction:
            services.staging = Staging(commit_too_late)
            services.owner.spawn(self._unless_broken(self._commit_together, staging))
            return False
        records = staging.records
        if not records:
            if services.is_memory and not handler.is_query:
                slot.seq += 1  # nothing is stored, but it exists
                services.note_change(slot)
            self.answer_seen()
            return True
        staging.records = []
        return self._commit(records)

    async def _run_waiting(self, handler: Handler, args: tuple[Any, ...]) -> None:
        """Run a handler that may wait, in a job of its own."""
        services, slot, message = self.services, self.slot, self.message
        owner = services.owner
        await owner.lease()
        if not self.is_current():
            self._abandon()
            return
        if not owner.may_begin(slot.shard):
            self._too_late()
            return
        entity: Any = slot.entity
        staging = Staging(self._commit_step)
        self.phase = PHASES[self.phase][RUNNING]
        self.began = owner.now()
        services.waiting[slot] = self
        task = asyncio.current_task()
        try:
            entity._sharding_staging = None if handler.is_query else staging
            with call_chain.within(message.chain, services.type.name, slot.id):
                result = await self._call(handler, entity, args)
            await self._steps_settled()
            if self.phase is not GIVEN_UP:
                self.value = self._encoded(handler, result, staging)
                if handler.fenced:
                    # A part of the handler's run: its object stays, and the next message waits.
                    self.elsewhere = not await owner.at_home(slot)
        except RAISED as error:
            if ends_job(error, task, cancelled=owner.closing):
                self._ends()
                raise
            await self._has_raised(error, staging)
            return
        finally:
            with contextlib.suppress(BaseException):  # the user's class may refuse to be written to
                entity._sharding_staging = None
            if services.waiting.get(slot) is self:
                del services.waiting[slot]
            if self.then is not None:
                self.then()
        if self._ends():
            await self._unless_broken(self._conclude, handler, staging)

    async def _has_raised(self, error: BaseException, staging: Staging) -> None:
        """Reply that the handler has raised, once its step is over."""
        if self.step_under_way is not None:
            await self._to_its_end(self._steps_settled())
        if self._ends():
            try:
                self._failed(error, staging)
            except RAISED as unreadable:  # an error of the user's that raises when it is shown
                self.broke(unreadable)
                raise

    async def _conclude(self, handler: Handler, staging: Staging) -> None:
        """Store the records that a handler which waited has staged last, and reply."""
        if self.elsewhere:
            self.hand_back()
            if self.is_current():
                self.services.owner.fenced(self.slot)
            return
        changes = changes_messages(self.message, staging)
        if changes and needs_time(staging) and self.is_current():
            await self.services.owner.know_server_time()
        if not self.is_current():
            self._abandon(ran=True)
            return
        if changes or staging.after_commit:
            self.staged = staging
        if self.services.is_memory and changes:
            await self._to_its_end(self._store_without_events(staging))
            return
        if (self.steps or staging.in_transaction or changes) and not staging.records:
            staging.records = [self._last_word()]
        if staging.in_transaction:
            await self._to_its_end(self._commit_together(staging))
        elif staging.records:
            if self._commit(staging.records):
                self.services.owner.finished(self.slot)
        else:
            if self.services.is_memory and not handler.is_query:
                self.slot.seq += 1
                self.services.note_change(self.slot)
            self.answer_seen()
            self.services.owner.finished(self.slot)

    async def _to_its_end(self, job: Coroutine[Any, Any, None]) -> None:
        """Do what a cancellation must not end in its middle: its outcome would be unknown.

        The handler's task may be cancelled behind the handler too, by a timer of the user's.
        """
        under_way = asyncio.ensure_future(job)
        while not under_way.done():
            try:
                await asyncio.shield(under_way)
            except asyncio.CancelledError:
                if self.services.owner.closing:
                    under_way.cancel()
                    raise
        under_way.result()

    def _ends(self) -> bool:
        """Note that the handler has ended. False: the command was given up before."""
        given_up = self.phase is GIVEN_UP
        self.phase = PHASES[self.phase][OVER if given_up else ENDED]
        return not given_up

    async def _call(self, handler: Handler, entity: object, args: tuple[Any, ...]) -> Any:
        threads, depth = self.services.owner.threads, depth_of(self.message.chain)
        if handler.thread:
            work = functools.partial(contextvars.copy_context().run, handler.function, entity, *args)
            pool = threads.executor(depth)
            return await asyncio.get_running_loop().run_in_executor(pool, threads.run, sendable(work))
        if handler.is_async:
            with threads.around(depth):
                return await handler.function(entity, *args)
        return handler.function(entity, *args)

    def _encoded(self, handler: Handler, result: object, staging: Staging) -> bytes:
        """Return the encoded result, after checking everything that is to be stored with it."""
        services = self.services
        if staging.broken is not None:
            raise staging.broken
        delivery = self.message.delivery
        if delivery is None:
            value = handler.encode_result(result)
        else:
            value = DONE if self.foreign is None else TAKEN
            if delivery.reply_to is not None:
                self.reply = reply_args(delivery, result)
                if self.reply is not None:
                    refuse_too_large(
                        delivery.reply_to[0], delivery.reply_to[2], self.reply, services.max_args
                    )
        if staging.messages:
            services.refuse_too_large(staging)
        if services.durable is not None and not handler.is_query and self.is_current():
            services.durable.stage(self.slot, staging)
        if len(value) > services.max_reply and self._stores(staging):
            raise services.reply_too_large(self.message, value, partly=self.steps > 0)
        return value

    def _stores(self, staging: Staging) -> bool:
        """Tell whether anything of the command is stored."""
        return bool(
            staging.records or self.steps or staging.in_transaction or changes_messages(self.message, staging)
        )

    def give_up(self) -> None:
        """Fail the command, whose handler still runs: it is not waited for any longer."""
        given_up = PHASES[self.phase][GIVEN_UP]
        replies, in_doubt = self.services.replies, self.step_under_way is not None
        error = replies.stopped_by_force(self.slot, self.message, partly=self.steps > 0, in_doubt=in_doubt)
        replies.fail(self.source, self.message, error)
        self.phase = given_up

    # -- Commits in the middle: `await self.persist(...)` ------------------------------------------

    async def _commit_step(self, staging: Staging) -> None:
        """Store all that is staged so far.

        Tasks of one handler may ask for this at the same time. Each waits for the step before it: a
        later one that went through beside a failed one would leave a gap.
        """
        if needs_time(staging):
            await self.services.owner.know_server_time()
        await self._steps_settled()
        if self.phase not in (RUNNING, GIVEN_UP):
            name = self.message.command
            raise WrongContext(f"{name} is over: await self.persist(...) before the handler returns")
        if staging.broken is not None:
            raise staging.broken
        try:
            if not self.is_current():
                raise StepFailed(NotCommitted.SUPERSEDED)
            under_way = self._begin_step(staging)
            cancelled = None if under_way is None else await self._outcome_of(under_way)
        except BaseException as error:
            # The object is ahead of the journal now: its command fails, whatever the handler does.
            staging.broken = error if isinstance(error, Exception) else StepFailed(NotCommitted.SUPERSEDED)
            raise
        if cancelled is not None:
            raise cancelled

    def _begin_step(self, staging: Staging) -> asyncio.Future[datetime | None] | None:
        """Put all that is staged so far on its way to the journal. None: nothing is staged."""
        services, slot = self.services, self.slot
        services.refuse_too_large(staging)
        if services.durable is not None:
            services.durable.stage(slot, staging)
        records: list[Record]
        records, staging.records = staging.records, []
        functions, staging.in_transaction = staging.in_transaction, []
        if not (records or functions or staging.messages or staging.cancelled):
            return None
        rows = self._rows(records or [self._last_word()], None, partial=True)
        changes: MessageChanges | None = None
        if changes_messages(self.message, staging):
            changes = message_changes(
                services.owner,
                services.type_id,
                slot,
                self.message,
                staging,
                park=True,
                resumed=self.steps > 0 or self.step_under_way is not None,
                foreign=self.foreign,
                is_over=self.timer_is_over,
            )
            self.timer_is_over = self.timer_is_over or ends_own_timer(self.message, staging)
        future: asyncio.Future[datetime | None]
        if functions:
            future = asyncio.ensure_future(self._append_together(rows, functions, changes))
        else:
            future = asyncio.get_running_loop().create_future()
            self.put(StepCommit(slot, rows, changes, future))
        if changes is not None or staging.after_commit:
            future.add_done_callback(functools.partial(self._step_followed, changes, staging.after_commit))
            staging.messages, staging.cancelled, staging.after_commit = [], [], []
        return future

    async def _outcome_of(self, under_way: asyncio.Future[datetime | None]) -> asyncio.CancelledError | None:
        """Wait until it is committed; raise the reason if it is not.

        A handler that is cancelled, by a timeout of its own for example, goes on only when the
        outcome is known: a commit cannot be called back.
        """
        cancelled: asyncio.CancelledError | None = None
        self.step_under_way = under_way
        under_way.add_done_callback(self._step_is_known)
        while True:
            try:
                await asyncio.shield(under_way)
            except asyncio.CancelledError as error:
                if under_way.cancelled():
                    raise  # a user's function has raised it
                if self.services.owner.closing:
                    under_way.cancel()
                    raise
                cancelled = error
            else:
                return cancelled

    def _step_is_known(self, under_way: asyncio.Future[datetime | None]) -> None:
        if self.step_under_way is under_way:
            self.step_under_way = None
        self.steps += not under_way.cancelled() and under_way.exception() is None

    def _step_followed(
        self,
        changes: MessageChanges | None,
        functions: Sequence[Callable[[], object]],
        future: asyncio.Future[datetime | None],
    ) -> None:
        if not future.cancelled() and future.exception() is None:
            self._follow_up(changes, future.result(), functions)

    async def _steps_settled(self) -> None:
        """Wait until no such commit is under way.

        One that a task of the handler awaits may outlast the handler.
        """
        while (under_way := self.step_under_way) is not None:
            await asyncio.wait((under_way,))
            await asyncio.sleep(0)

    # -- The last commit ---------------------------------------------------------------------------

    def _commit(self, records: Sequence[Record]) -> bool:
        """Put the last records into the journal. The answer follows. True: the entity may go on."""
        services, slot = self.services, self.slot
        self.rows = self._rows(records, self.value, partial=False)
        self.snapshot = services.snapshots.due(slot, records[-1])
        if self.staged is not None:
            self.message_changes = self._message_changes(self.staged)
        self.phase = PHASES[self.phase][COMMITTING]
        self.put(self)
        overlaps = (
            services.is_pipelined
            and not self.snapshot
            and not (self.message_changes and _is_alone(self.message_changes))
        )
        if overlaps and slot.pending < services.pipeline_limit:
            self.overlapping = True
            slot.shard.overlaps(slot)
            slot.tail = self
            return True
        return False

    async def _commit_together(self, staging: Staging) -> None:
        """Make the last commit in one transaction with the user's own writes."""
        services, slot = self.services, self.slot
        if not self.is_current():
            self._abandon()
            return
        records = staging.records or [self._last_word()]
        self.rows = self._rows(records, self.value, partial=False)
        self.snapshot = services.snapshots.due(slot, records[-1])
        if self.staged is not None:
            self.message_changes = self._message_changes(staging)
        self.phase = PHASES[self.phase][COMMITTING]
        task = asyncio.current_task()
        self.began = self.began or services.owner.now()
        services.storing[slot] = self
        try:
            self.at = await self._append_together(self.rows, staging.in_transaction, self.message_changes)
        except StepFailed as failed:
            self.early = failed.early
            self.not_committed(failed.why, failed.detail)
        except RAISED as error:
            if ends_job(error, task, cancelled=services.owner.closing):
                raise
            if self.is_current():
                if self._raised(error, staged=True):
                    services.owner.finished(slot)
            else:
                self._abandon()
        else:
            self.committed()
        finally:
            if services.storing.get(slot) is self:
                del services.storing[slot]

    async def _append_together(
        self,
        rows: Sequence[EventRow],
        functions: Sequence[Callable[[], object]],
        changes: MessageChanges | None,
    ) -> datetime | None:
        together = self.services.together
        if together is None and self.services.journal_name:
            raise WrongContext(
                f"persist(..., in_transaction=...) is not possible for {self.services.type.name} {self.slot.id!r}: its"
                f" events lie in the database {self.services.journal_name!r}, and one transaction cannot write there and"
                " in the application's database. Let a projection or a message do it"
            )
        if together is None:
            raise WrongContext(
                "persist(..., in_transaction=...) needs the real cluster: there is no database here"
            )
        # An earlier commit may have failed before this task began: there must be no gap.
        if self.is_current():
            await self.slot.commits_settled()
        if not self.is_current():
            raise StepFailed(NotCommitted.SUPERSEDED)
        self.writes_rows = True
        try:
            at = await together(rows, [sendable(each) for each in functions], changes)
        except MessagesGone as gone:
            why, early = why_taken(gone, gone.ids)
            raise StepFailed(why, early=early) from gone
        except JournalUnavailable as lost:
            raise StepFailed(NotCommitted.UNAVAILABLE, str(lost)) from lost
        except ShardsFenced as fenced:
            raise StepFailed(NotCommitted.FENCED) from fenced
        except RowRefused as refused:
            raise StepFailed(why_refused(refused), refused.reason) from refused
        finally:
            self.writes_rows = False
        self.services.writer.committed(rows)
        return at

    def _rows(self, records: Sequence[Record], value: bytes | None, *, partial: bool) -> list[EventRow]:
        """Give the records their numbers. The last row carries the values that make a retry
        safe.
        """
        services, slot, message = self.services, self.slot, self.message
        command_id, said = message.command_id, message.command
        if command_id:
            said = as_stored(message, services.commands[said])
            services.earlier_attempts.note(slot, message)
        else:
            command_id = id_of_ours(self.source, message.request)
        return number_rows(services.type_id, slot, records, command_id, said, value, partial=partial)

    def _last_word(self) -> Record:
        """Return the record for a commit without an event.

        It holds the reply for a retry, and the fence checks it. A transaction of the user's rows
        alone would be bound by neither.
        """
        durable = self.services.durable
        if durable is not None:
            return durable.record(self.slot)
        return FINISHED, 1, b"{}", None

    # -- Without events ----------------------------------------------------------------------------

    def _store_messages(self, staging: Staging) -> bool:
        """Store the messages of a handler that did not wait, with its records.

        True: the entity may go on.
        """
        services, moves = self.services, changes_messages(self.message, staging)
        self.staged = staging
        if staging.messages and not services.owner.knows_server_time and needs_time(staging):
            services.owner.spawn(self._unless_broken(self._store_messages_later, staging))
            return False
        if services.is_memory and moves:
            services.owner.spawn(self._unless_broken(self._store_without_events, staging))
            return False
        if staging.in_transaction:
            services.owner.spawn(self._unless_broken(self._commit_together, staging))
            return False
        if not (moves or staging.records):
            if services.is_memory:
                self.slot.seq += 1
                services.note_change(self.slot)
            self.answer_seen()
            return True
        return self._commit(staging.records or [self._last_word()])

    async def _store_messages_later(self, staging: Staging) -> None:
        """Store it once the server's time is known, on which the first time of a timer depends."""
        owner, slot = self.services.owner, self.slot
        await owner.know_server_time()
        if not self.is_current():
            self._abandon(ran=True)
        elif self._store_messages(staging):
            owner.finished(slot)

    async def _store_without_events(self, staging: Staging) -> None:
        """Store the messages of a command of an in-memory entity; then end its own message.

        Both may be repeated. If this node dies in between, the message is delivered once more. A
        row in another journal is ended by the home of its owner alone. So the reply leaves a mark:
        a delivery that was in hand as well, or comes before that end, stores no other one.
        """
        services, slot = self.services, self.slot
        owner = services.owner
        if not self.is_current():
            self._abandon(ran=True)
            return
        slot.seq += 1
        services.note_change(slot)
        place = owner.new_message_place(slot.shard.epoch, len(staging.messages) + 1)  # 1: the reply
        changes = self.message_changes = message_changes(
            owner, services.type_id, slot, self.message, staging, place=place, foreign=self.foreign
        )
        takes = changes.takes if self.foreign is None or self.reply is not None else ()
        if self.reply is not None and self.message.delivery is not None:
            reply = reply_row(
                owner,
                services.type_id,
                slot,
                self.message.delivery,
                self.reply,
                place[0],
                place[1] + len(changes.sends),
            )
            takes = [each._replace(reply=reply) for each in takes]
        self.phase = PHASES[self.phase][COMMITTING]
        with owner.storing(changes):
            if not await self._stored(changes, takes):
                return
        if takes and takes[0].reply is not None:
            # The reply was stored by the end of the message. Its time is not known: it is read.
            self.at = None
            self.message_changes = changes._replace(sends=[*changes.sends, takes[0].reply])
        self.committed()

    async def _stored(self, changes: MessageChanges, takes: Sequence[Taking]) -> bool:
        """Store the messages of a command without events, then end its own message. False: the
        command has failed.
        """
        services, slot = self.services, self.slot
        owner, journal = services.owner, services.journal
        staged = not (changes.sends or changes.cancels)
        while True:
            try:
                if not staged:
                    claim = services.type_id, slot.shard.number, slot.shard.epoch
                    self.at = await journal.stage(changes.sends, changes.cancels, claim=claim)
                    staged = True
                if takes and self.foreign is not None:
                    await journal.stage([each.reply for each in takes if each.reply is not None], (), takes)
                elif takes and not await journal.discard(takes):
                    self.value = GONE  # it was delivered before, and is handled once more
                return True
            except MessagesGone:
                return True  # so was a foreign one, and replied to
            except JournalUnavailable:
                await asyncio.sleep(RETRY_SECONDS)
                await owner.lease()
            except ShardsFenced:
                self.fail(services.replies.lost_while_running(slot, self.message))
                if self.is_current():
                    owner.fenced(slot)
                return False
            except RowRefused as refused:
                self.not_committed(why_refused(refused), refused.reason)
                return False

    def _message_changes(self, staging: Staging) -> MessageChanges | None:
        """Return what goes with the last commit, besides its rows."""
        services, message = self.services, self.message
        if message.delivery is None and not (staging.messages or staging.cancelled):
            return None
        return message_changes(
            services.owner, services.type_id, self.slot, message, staging, self.reply,
            resumed=self.steps > 0, foreign=self.foreign, is_over=self.timer_is_over,
        )  # fmt: skip

    def _follow_up(
        self, changes: MessageChanges | None, at: datetime | None, functions: Sequence[Callable[[], object]]
    ) -> None:
        """Deliver what was committed, and run what follows."""
        services = self.services
        if changes is not None and (changes.sends or changes.cancels):
            services.owner.staged(self.slot, changes, at)
        if functions:
            after = run_after_commit(
                services.owner, services.type, self.message.command, functions, services.counters
            )
            services.owner.spawn(after)

    def put(self, commit: Commit) -> None:
        """Put rows of this command into the journal's next batch."""
        self.services.writer.put(commit)

    def committed(self) -> None:
        services, slot = self.services, self.slot
        self.answer()
        if not self.is_current():
            return
        if self.overlapping:
            if slot.tail is self:
                slot.tail = None
            services.owner.settled(slot)
        else:
            if self.snapshot:
                # Nothing else of this entity runs or is under way: its state is the committed one.
                services.snapshots.committed(slot)
            services.owner.finished(slot)

    def not_committed(self, why: NotCommitted, detail: str) -> None:
        owner, slot = self.services.owner, self.slot
        current = self.is_current()
        moved = why is NotCommitted.FENCED or (why is NotCommitted.SUPERSEDED and slot.is_gone)
        if why is NotCommitted.TAKEN:
            self._was_taken(self.early)
        elif why is NotCommitted.MARKED:
            self._was_marked()
        elif moved and not self.steps:
            self.hand_back()
        else:
            self.fail(self._error(why, detail))
        if not current:
            return
        if why is NotCommitted.FENCED:
            owner.fenced(slot)
        # The object is rebuilt as soon as no handler of it runs.
        elif self.services.outdate(slot, functools.partial(self._outdated, slot)):
            close_context(slot.entity)
        else:
            owner.reload(slot)

    def _outdated(self, slot: Resident) -> None:
        """Rebuild the object whose last handler has ended, if its shard is still here."""
        if not slot.is_gone:
            self.services.owner.reload(slot)

    # -- Replies -----------------------------------------------------------------------------------

    def answer(self) -> None:
        over = PHASES[self.phase][OVER]
        self.services.replies.answer(self.source, self.message, self.value)
        self.phase = over
        staged, changes = self.staged, self.message_changes
        if staged is not None and (
            staged.after_commit or (changes is not None and (changes.sends or changes.cancels))
        ):  # a command that only takes its message has nothing to follow
            self._follow_up(changes, self.at, staged.after_commit)

    def _was_taken(self, early: float) -> None:
        """Answer the delivery of a message that has taken effect before, or is not due yet.

        Nothing of this one is stored.
        """
        over = PHASES[self.phase][OVER]
        self.services.counters["deliveries_too_early" if early else "deliveries_repeated"] += 1
        value = outcome.encode(outcome.Outcome("early", early)) if early else GONE
        self.services.replies.answer(self.source, self.message, value)
        self.phase = over

    def _was_marked(self) -> None:
        """Answer the delivery of a message that has taken effect before, and whose row is there."""
        over = PHASES[self.phase][OVER]
        self.services.counters["deliveries_repeated"] += 1
        self.services.replies.answer(self.source, self.message, TAKEN)
        self.phase = over

    def fail(self, error: ShardingError) -> None:
        over = PHASES[self.phase][OVER]
        self.services.replies.fail(self.source, self.message, error)
        self.phase = over

    def refuse(self, error: ShardingError) -> None:
        """Fail the command, whose handler does not begin (`Replies.refuse`)."""
        over = PHASES[self.phase][OVER]
        self.services.replies.refuse(self.source, self.message, error)
        self.phase = over

    def hand_back(self) -> None:
        over = PHASES[self.phase][OVER]
        self.services.replies.hand_back(self.source, self.message)
        self.phase = over

    def answer_seen(self) -> None:
        """Answer a command that persisted nothing, once the state that it has seen is committed."""
        if self.slot.tail is None and self.slot.doomed is None:
            self.answer()
        else:
            self._after_tail(self.answer)

    def _after_tail(self, send: Callable[[], None]) -> None:
        """Send a reply when the commits of its state are through.

        If they fail, the reply is not true. Commits of an object that was dropped have no part in
        its state: their failure is told first.
        """
        tail = self.slot.tail
        if tail is None:
            doomed = self.slot.doomed
            if doomed is None or doomed.is_resolved:
                send()
            else:
                doomed.follow(lambda _: self.hand_back() if self.slot.is_gone else send())
            return

        slot = self.slot
        slot.answers += 1

        def follow(why: NotCommitted | None) -> None:
            slot.answers -= 1
            if why is None:
                send()
            elif why is NotCommitted.FENCED or self.slot.is_gone:
                self.hand_back()
            else:
                self.fail(
                    self.services.replies.not_committed(self.slot, self.message, NotCommitted.SUPERSEDED)
                )

        tail.follow(follow)

    def _too_late(self) -> None:
        """Hand the command back: its shard lost its lease before it began."""
        self.hand_back()
        self.services.owner.finished(self.slot)

    def _abandon(self, *, ran: bool = False) -> None:
        """Fail or hand back the command: its object was dropped while it waited.

        Nothing (more) of it is stored. `ran`: its handler has begun. Such a command of an in-memory
        entity is not handed back, unless it is a query or has a command id.
        """
        slot = self.slot
        if ran and slot.is_gone and not self.services.may_run_again(self.message):
            self.fail(self.services.replies.lost_while_running(slot, self.message))
        elif self.steps or not slot.is_gone:
            self.fail(self._error(NotCommitted.SUPERSEDED))
        else:
            self.hand_back()

    def _error(self, why: NotCommitted, detail: str = "") -> ShardingError:
        replies = self.services.replies
        return replies.not_committed(self.slot, self.message, why, detail, partly=self.steps > 0)

    # -- Failures of the handler -------------------------------------------------------------------

    def _failed(self, error: BaseException, staging: Staging) -> None:
        """Reply after the error of a handler that waited, and decide about its object."""
        owner, slot = self.services.owner, self.slot
        if isinstance(staging.broken, StepFailed):
            error = staging.broken
        if not self.is_current():
            self._abandon(ran=True)
        elif not isinstance(error, StepFailed):
            staged = bool(staging.records) or staging.broken is not None or self.steps > 0
            if self._raised(error, staged=staged):
                owner.finished(slot)
        elif error.why is NotCommitted.FENCED:
            owner.fenced(slot)
            self._abandon()
        elif error.why is NotCommitted.TAKEN:
            self._was_taken(error.early)
            self._rebuild(0.0)
        elif error.why is NotCommitted.MARKED:
            self._was_marked()
            self._rebuild(0.0)
        else:
            self.fail(self._error(error.why, error.detail))
            self._rebuild(0.0)

    def _raised(self, error: BaseException, *, staged: bool) -> bool:
        """Fail with the handler's error. True: the object may stay (until its entity stops)."""
        services, slot = self.services, self.slot
        failures, partly = services.failures, self.steps > 0
        if slot.shard.had_last_word(slot):
            slot.ended = True
            failures.stop_handler_raised(slot, error)
            self.phase = PHASES[self.phase][OVER]  # no caller waits for a stop message
            return True
        refused = isinstance(error, Rejected | NotSerializable)
        if refused and not partly:
            failed = cast(ShardingError, error)
        else:
            failed = failures.error_for(slot, self.message, error, partly=partly)
        # The error goes out once the state that may have led to it is committed.
        self._after_tail(lambda: self.fail(failed))
        directive = "resume" if refused else failures.directive(error)
        if (
            directive == "resume"
            and not staged
            and (services.durable is None or services.durable.as_stored(slot))
        ):
            return True
        if directive == "stop":
            slot.ended = True
            services.owner.finished(slot)
            return False
        if directive == "escalate":
            services.owner.restart_shard(slot.shard)
        # The entity's own commands (a timer's) are held back after failures, a caller's never.
        delay = failures.delay(slot) if self.source == NO_CALLER and not refused else 0.0
        self._rebuild(delay)
        return False

    def _rebuild(self, delay: float) -> None:
        """Drop the object once the commits before it, which are still valid, are through."""
        owner, slot, tail = self.services.owner, self.slot, self.slot.tail
        if tail is None:
            owner.reload(slot, delay)
            return
        generation = slot.generation

        def follow(why: NotCommitted | None) -> None:
            if generation == slot.generation:
                owner.reload(slot, delay)

        tail.follow(follow)

    async def _unless_broken(self, job: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Do a part around the handler. After a bug in it the entity goes on with the next
        message.
        """
        task = asyncio.current_task()
        try:
            await job(*args)
        except RAISED as error:
            if not ends_job(error, task, cancelled=self.services.owner.closing):
                if self.services.waiting.get(self.slot) is self:
                    del self.services.waiting[self.slot]
                self.broke(error)
            raise

    def broke(self, error: BaseException) -> None:
        """Fail after an error around the handler. It costs this command and this object."""
        # A `def` handler may have left records in the one that the commands of the type share.
        self.services.staging = Staging(commit_too_late)
        partly = self.steps > 0
        failed = self.services.failures.error_for(self.slot, self.message, error, partly=partly)
        if self.phase is not OVER:
            self.phase = OVER  # whatever it was
            self.services.replies.fail(self.source, self.message, failed)
        if self.is_current() and not self.slot.is_gone:
            if self.slot.tail is self:  # its followers may never hear of its own outcome
                self.services.owner.reload(self.slot)
            else:
                self._rebuild(0.0)


def _is_alone(changes: MessageChanges) -> bool:
    """Whether no later commit of the entity may share an append with these changes: their order
    would be lost.
    """
    return bool(changes.takes or changes.cancels) or any(each.key is not None for each in changes.sends)


async def commit_too_late(staging: Staging) -> None:
    raise WrongContext(
        "await self.persist(...) needs an `async def` handler: in a `def` it is stored at the return"
    )


class Services:
    """The parts of the runtime that commands of one type use, in one process."""

    def __init__(
        self,
        entity_type: EntityType,
        type_id: int,
        writer: JournalWriter,
        journal: Journal,
        owner: Owner,
        watch: Watch,
        meter: Meter,
        *,
        command_window_seconds: float,
        pipeline_limit: int,
        max_reply_bytes: int,
        max_args_bytes: int,
        max_state_bytes: int,
        check_state: bool = False,
        together: Together | None = None,
        journal_name: str = "",
        others: Callable[[str], Journal] | None = None,
    ) -> None:
        """`journal_name`: the alias of the database of that journal, if it is not the cluster's.
        `others`: returns another journal of the cluster by its name, if there are others; raises
        JournalUnavailable.
        """
        self.type = entity_type
        self.type_id = type_id
        self.owner = owner
        self.counters: Counter[str] = Counter()
        self.writer = writer
        self.watch = watch
        self.together = together
        self.journal_name = journal_name
        self.journal = journal
        self.retention = Retention(entity_type, type_id, journal, command_window_seconds)
        self.snapshots = Snapshots(entity_type, type_id, journal, self.retention, max_state_bytes)
        self.max_reply = max_reply_bytes
        self.max_args = max_args_bytes
        self.failures = HandlerFailures(entity_type, owner, meter, self.counters)
        self.replies = Replies(entity_type, owner, meter, self.counters, self.failures.did_well)
        self.earlier_attempts = EarlierAttempts(
            entity_type, type_id, journal, owner.now, command_window_seconds
        )
        self.foreign: ForeignMessages | None = None
        "Set where there are several journals."
        if others is not None:
            self.foreign = ForeignMessages(journal_name, journal, others, owner.spawn)
            self.replies.foreign = self.foreign
        self.durable: DurableState | None = None
        "Set for types whose entities are stored as a whole."
        if entity_type.kind == "durable_state":
            self.durable = DurableState(entity_type, max_state_bytes)
        self.commands: dict[str, Handler] = dict(entity_type.commands)
        if entity_type.receives:
            self.commands[MESSAGE] = cast(Handler, MessageHandler(entity_type))
        if check_state and entity_type.kind == "event_sourced":
            guarded = StateGuard(entity_type).guarded
            self.commands = {name: guarded(handler) for name, handler in self.commands.items()}
        self.is_memory = entity_type.kind == "memory"
        self.is_pipelined = bool(entity_type.settings.pipelined)
        self.pipeline_limit = pipeline_limit
        self.followed: Mapping[tuple[int, ShardId], object] = {}
        "The shards with entities that are followed, of any type."
        self.waiting: dict[Resident, Command] = {}
        self.storing: dict[Resident, Command] = {}
        "Commands whose last commit is a transaction with rows of the user."
        "Commands that are asked about, or whose handlers wait."
        self.staging = Staging(commit_too_late)
        "Of commands that do not wait: one after the other uses it."

    def outdate(self, slot: Resident, then: Callable[[], None]) -> bool:
        """Let nothing more be stored of the running command; call `then` when its handler ends.

        Until then nothing else may run in its entity. False: no handler runs.
        """
        command = self.waiting.get(slot)
        if command is None or command.phase is not RUNNING:
            return False
        slot.generation += 1
        command.then = then
        return True

    def note_change(self, slot: Resident) -> None:
        """Tell the followers of an in-memory entity that its state may have changed."""
        if self.followed:
            self.owner.changed(slot)

    def may_run_again(self, message: Deliver) -> bool:
        """Decide as the calling process does after the death of this node
        (`runtime.node.process`).
        """
        handler = self.type.commands.get(message.command)
        is_query = handler is not None and handler.is_query
        return not self.is_memory or is_query or bool(message.command_id)

    def refuse_too_large(self, staging: Staging) -> None:
        """Raise an error if a message could be stored, but not be sent to another node."""
        for each in staging.messages:
            refuse_too_large(each.target_type, each.command, each.args, self.max_args)

    def reply_too_large(self, message: Deliver, value: bytes, *, partly: bool) -> NotSerializable:
        """Return the error for a reply that is too large to be kept beside the events."""
        return reply_not_kept(self.type.name, message.command, len(value), self.max_reply, partly=partly)
