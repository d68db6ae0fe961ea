"""Running one command on one entity: decode, call, stage, commit, answer.

Contract: an answer that reports success goes out after the commit of all that it has seen. A handler that raises
journals nothing that is still staged, and its object is thrown away and rebuilt if it had staged anything or failed in
any other way than by refusing. `run` says whether the entity may go on to its next envelope; if not, the owner's
`finished` or `reload` is called when it may.

A *pipelined* type goes on while its commit is under way. What later commands and queries answer then waits for the commits
whose state they have seen; if one fails, all behind it fail, and the object is recovered first.
"""

import hashlib
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import msgspec

from sharding_app.core.ids import Incarnation
from sharding_app.core.messages import Answer, Deliver, Failed, HandBack
from sharding_app.core.shard import Slot
from sharding_app.core.supervision import Directive, Failures, Supervision
from sharding_app.core.words import EXISTS, MESSAGE, START
from sharding_app.errors import (
    EntityFailed,
    NotStorable,
    PartlyApplied,
    Rejected,
    ShardingError,
    Unavailable,
    WrongContext,
    to_wire,
)
from sharding_app.model.staging import Record, Staging
from sharding_app.model.types import EntityType, Handler
from sharding_app.ports.journal import Journal
from sharding_app.quoting import told, traceable
from sharding_app.runtime import calls
from sharding_app.runtime.commits import CommandCommit, number_rows
from sharding_app.runtime.journal_writer import JournalWriter, NotCommitted
from sharding_app.runtime.message_handler import MessageHandler
from sharding_app.runtime.meter import Meter
from sharding_app.runtime.owner import NOBODY, Owner, Together, Watch
from sharding_app.runtime.retries import Retries, as_stored
from sharding_app.runtime.snapshots import Snapshots
from sharding_app.runtime.waiting import WaitingCommands, is_gone

logger = logging.getLogger("sharding.entity")

STATE = "state"
"""The name under which a durable-state entity's values stand in the journal."""


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
        meter: Meter,
        *,
        command_window_seconds: float,
        pipeline_limit: int,
        max_reply_bytes: int,
        max_state_bytes: int,
        together: Together | None = None,
    ) -> None:
        self.type = entity_type
        self.type_id = type_id
        self.owner = owner
        self.counters: Counter[str] = Counter()
        self.writer = writer
        self.watch = watch
        self.meter = meter
        self.snapshots = Snapshots(entity_type, type_id, journal, command_window_seconds, max_state_bytes)
        self.max_reply = max_reply_bytes
        self.max_state = max_state_bytes
        self._commands: dict[str, Handler] = dict(entity_type.commands)
        if entity_type.receives:
            self._commands[MESSAGE] = cast(Handler, MessageHandler(entity_type))
        self._supervision = entity_type.settings.supervision or Supervision()
        self._failures = Failures(self._supervision.forgive_after_seconds)
        self._durable = entity_type.kind == "durable_state"
        self._memory = entity_type.kind == "memory"
        self._pipelined = bool(entity_type.settings.pipelined)
        self._pipeline_limit = pipeline_limit
        self._staging = Staging(self._commit_too_late)
        self._waiting = WaitingCommands(self, together)
        self._retries = Retries(self, journal, command_window_seconds)

    # -- One command -----------------------------------------------------------------------------------------------

    def run(self, slot: Slot, source: Incarnation, message: Deliver) -> bool:
        """Handle one envelope. True: the entity may go on; False: it stays busy with this one."""
        handler = self._commands.get(message.command)
        if handler is None and message.command in (EXISTS, START):
            self.answer_seen(slot, source, message, b"1" if slot.seq else b"")
            return True
        try:
            if handler is None:
                handler = self.type.handler(message.command)  # raises, naming what there is
            args = handler.decode(message.args)
        except ShardingError as error:
            self.fail(source, message, error)
            return True
        if message.command_id and not handler.is_query and not self._memory:
            self.owner.spawn(self._retries.run(slot, slot.generation, source, message, handler, args))
            return False
        return self.start(slot, source, message, handler, args)

    def start(
        self, slot: Slot, source: Incarnation, message: Deliver, handler: Handler, args: tuple[Any, ...]
    ) -> bool:
        if handler.is_async or handler.thread or handler.fenced:
            self.owner.spawn(self._waiting.run(slot, slot.generation, source, message, handler, args))
            return False
        entity: Any = slot.entity
        staging = self._staging
        entity._sharding_staging = None if handler.is_query else staging
        self.watch.running = (message.type, handler.name)
        token = calls.enter((message.chain, message.type, slot.id))
        try:
            result = handler.function(entity, *args)
            if staging.broken is not None:
                raise staging.broken
            value = handler.encode_result(result)
            if self._durable and not handler.is_query:
                self.stage_state(slot, staging)
            if staging.records and len(value) > self.max_reply:
                raise self.reply_too_large(message, value)
        except Exception as error:  # noqa: BLE001  (whatever a handler raises, it fails that command only)
            staged = bool(staging.records) or staging.broken is not None
            staging.clear()
            return self.raised(slot, source, message, error, staged=staged)
        finally:
            calls.leave(token)
            self.watch.running = None
            entity._sharding_staging = None
        if staging.also:
            mine, self._staging = staging, Staging(self._commit_too_late)
            self.owner.spawn(
                self._waiting.finish_together(slot, slot.generation, source, message, mine, value)
            )
            return False
        records = staging.records
        if not records:
            if self._memory and not handler.is_query:
                slot.seq += 1  # nothing is stored, but it exists
            self.answer_seen(slot, source, message, value)
            return True
        staging.records = []
        return self.commit(slot, source, message, records, value)

    def commit(
        self,
        slot: Slot,
        source: Incarnation,
        message: Deliver,
        records: list[Record],
        value: bytes,
        *,
        partly: bool = False,
    ) -> bool:
        """Put a command's last records into the journal; the answer follows."""
        command_id = message.command_id or f"{source}:{message.request}"
        said = message.command if not message.command_id else self.said(message)
        rows = number_rows(self.type_id, slot, records, command_id, said, value, partial=False)
        commit = CommandCommit(slot, rows, self, source, message, value)
        commit.partly = partly
        commit.snapshot = self.snapshots.due(slot, records[-1][3])
        self.writer.put(commit)
        if self._pipelined and not commit.snapshot and slot.pending < self._pipeline_limit:
            commit.overlapping = True
            slot.shard.overlaps(slot)
            slot.tail = commit
            return True
        return False

    def said(self, message: Deliver) -> str:
        """What the journal keeps of a command beside its id."""
        return as_stored(message, self._commands[message.command])

    def stage_state(self, slot: Slot, staging: Staging) -> None:
        """A durable-state entity stages its state if that differs from what was stored last."""
        record = self.state_record(slot)
        mark = fingerprint(record[2])
        if mark != slot.stored or staging.also:
            staging.records = [record]
            slot.stored = mark

    def state_record(self, slot: Slot) -> Record:
        """A durable-state entity's present state."""
        state = self.type.dump_state(slot.entity)
        if len(state) > self.max_state:
            raise NotStorable(
                f"{self.type.name} {slot.id!r}: its state has {len(state)} bytes, more than the {self.max_state}"
                " of MAX_STATE_BYTES: nothing of the command is stored",
                code="state_too_large",
            )
        return STATE, 1, state, None

    def raised(
        self,
        slot: Slot,
        source: Incarnation,
        message: Deliver,
        error: BaseException,
        *,
        staged: bool,
        partly: bool = False,
    ) -> bool:
        """Answer with the error; True if the object may stay."""
        failed: ShardingError
        if isinstance(error, Rejected | NotStorable) and not partly:
            failed = error
        else:
            failed = self.type.failed(slot.id, message.command, error)
            if partly:
                failed = PartlyApplied(f"{failed.message}; what it had awaited stays", params=failed.params)
            self.counters["handler_failed"] += 1
            self.meter.trouble(slot.id, message.command, type(error).__qualname__)
            self.owner.listener.entity_failed(self.type, slot.id, message.command, error)
            logger.error(
                "%s.%s raised %s", self.type.name, message.command, type(error).__qualname__,
                exc_info=traceable(error), extra={"action": "handler_failed", "entity_type": self.type.name},
            )  # fmt: skip
        self._after_tail(slot, source, message, lambda: self.fail(source, message, failed))
        refused = isinstance(error, Rejected | NotStorable)
        directive = "resume" if refused else self._supervision.directive(error)
        if directive == "resume" and not staged and self._as_stored(slot):
            return True
        if refused:
            self._rebuild(slot)
        else:
            self._supervise(slot, directive)
        return False

    def _supervise(self, slot: Slot, directive: Directive) -> None:
        """A handler has failed: its entity stops, or is rebuilt, later each time that it fails in a row."""
        if directive == "stop":
            slot.ended = True
            self.owner.finished(slot)
            return
        if directive == "escalate":
            self.owner.restart_shard(slot.shard)
        delay = self._supervision.delay(self._failures.count(slot.id, self.owner.now()))
        self._rebuild(slot, delay)

    def _as_stored(self, slot: Slot) -> bool:
        """Whether a durable-state entity is as it was before a command that failed."""
        if not self._durable:
            return True
        try:
            return fingerprint(self.type.dump_state(slot.entity)) == slot.stored
        except NotStorable:
            return False

    def _rebuild(self, slot: Slot, delay: float = 0.0) -> None:
        """Throw the object away, once the commits of those before it, which are as good as ever, are through."""
        tail = slot.tail
        if tail is None:
            self.owner.reload(slot, delay)
            return
        generation = slot.generation

        def follow(why: NotCommitted | None) -> None:
            if generation == slot.generation:
                self.owner.reload(slot, delay)

        cast(CommandCommit, tail).follow(follow)

    def reply_too_large(self, message: Deliver, value: bytes) -> NotStorable:
        """A reply is stored beside the events, for a retry: it has to fit there, and into a message."""
        return NotStorable(
            f"{self.type.name}.{message.command}: its reply has {len(value)} bytes, more than {self.max_reply}:"
            " nothing of the command is stored. Return less of it at a time, or raise MAX_REPLY_BYTES",
            code="reply_too_large",
        )

    async def _commit_too_late(self, staging: Staging) -> None:
        raise WrongContext(
            "await self.persist(...) needs an `async def` handler: in a `def` it is stored at the return"
        )

    # -- Outcomes --------------------------------------------------------------------------------------------------

    def committed(self, commit: CommandCommit) -> None:
        slot = commit.slot
        self.answer(commit.source, commit.message, commit.value)
        if commit.generation != slot.generation:
            return
        if commit.overlapping:
            if slot.tail is commit:
                slot.tail = None
            self.owner.settled(slot)
        else:
            # Nothing else of this entity runs or is under way: its state is what is committed.
            self.snapshots.committed(slot, due=commit.snapshot)
            self.owner.finished(slot)

    def not_committed(self, commit: CommandCommit, why: NotCommitted, detail: str) -> None:
        slot = commit.slot
        current = commit.generation == slot.generation
        moved = why is NotCommitted.FENCED or (why is NotCommitted.SUPERSEDED and is_gone(slot))
        if moved and not commit.partly:
            self.hand_back(commit.source, commit.message)
        else:
            refusal = self.refusal(slot, commit.message, why, detail, partly=commit.partly)
            self.fail(commit.source, commit.message, refusal)
        if current:
            if why is NotCommitted.FENCED:
                self.owner.fenced(slot)
            else:
                self.owner.reload(slot)

    def answer_seen(self, slot: Slot, source: Incarnation, message: Deliver, value: bytes) -> None:
        """Answer what persisted nothing: at once, or when what it has seen is committed."""
        if slot.tail is None:
            self.answer(source, message, value)
        else:
            self._after_tail(slot, source, message, lambda: self.answer(source, message, value))

    def _after_tail(
        self, slot: Slot, source: Incarnation, message: Deliver, send: Callable[[], None]
    ) -> None:
        """Say something when the commits are through whose state it is about; if they fail, it is not true."""
        tail = slot.tail
        if tail is None:
            send()
            return

        def follow(why: NotCommitted | None) -> None:
            if why is None:
                send()
            elif why is NotCommitted.FENCED or is_gone(slot):
                self.hand_back(source, message)
            else:
                self.fail(source, message, self.refusal(slot, message, NotCommitted.SUPERSEDED, ""))

        cast(CommandCommit, tail).follow(follow)

    def abandoned(self, slot: Slot, source: Incarnation, message: Deliver, *, partly: bool) -> None:
        """The object was thrown away while its command waited for something: nothing (more) of it is stored."""
        if partly or not is_gone(slot):
            self.fail(
                source, message, self.refusal(slot, message, NotCommitted.SUPERSEDED, "", partly=partly)
            )
        else:
            self.hand_back(source, message)

    def too_late(self, slot: Slot, source: Incarnation, message: Deliver) -> None:
        """The shard's lease was lost before the command began: it goes to the shard's next home."""
        self.hand_back(source, message)
        self.owner.finished(slot)

    def give_up(self, slot: Slot) -> None:
        """Tell whoever waits for the command that runs now that it is not waited for any longer."""
        found = self._waiting.give_up(slot)
        if found is not None:
            source, message, partly = found
            what = (
                f"{self.type.name} {slot.id!r}: {message.command} was stopped by force, its shard had to move"
            )
            error: ShardingError = Unavailable(what, code="stopped_by_force")
            self.fail(source, message, PartlyApplied(what) if partly else error)

    def answer(self, source: Incarnation, message: Deliver, value: bytes) -> None:
        if message is self.meter.watched:
            self.meter.done()
        if message.timeout_ms:
            self.owner.send(source, Answer(message.request, value))
        else:
            self.owner.done(source, message.request)

    def fail(self, source: Incarnation, message: Deliver, error: ShardingError) -> None:
        self.counters["rejected" if isinstance(error, Rejected) else "failed"] += 1
        if message is self.meter.watched:
            self.meter.done()
        if source == NOBODY:
            logger.warning(
                "%s.%s, which a timer called, failed: %s", self.type.name, message.command, told(error),
                extra={"action": "timer_failed", "entity_type": self.type.name},
            )  # fmt: skip
            return
        kind, text, params = to_wire(error)
        packed = msgspec.msgpack.encode(params) if params else b""
        self.owner.send(source, Failed(message.request, kind, text, packed))

    def hand_back(self, source: Incarnation, message: Deliver) -> None:
        if source != NOBODY:
            self.owner.send(source, HandBack(message.type, message.shard, message.epoch, [message.request]))

    def refusal(
        self, slot: Slot, message: Deliver, why: NotCommitted, detail: str, *, partly: bool = False
    ) -> ShardingError:
        what = f"{self.type.name} {slot.id!r}: {message.command}"
        self.counters[f"not_committed_{why.value}"] += 1
        self.meter.trouble(slot.id, message.command, f"not_committed: {why.value}")
        if partly:
            return PartlyApplied(f"{what} had committed a part; the rest was {why.value} {detail}".rstrip())
        if why is NotCommitted.REFUSED:
            return NotStorable(f"{what}: Postgres refused its events: {detail}")
        if why is NotCommitted.SUPERSEDED:
            return Unavailable(
                f"{what}: an earlier commit of this entity failed; nothing of this one is stored"
            )
        if why is NotCommitted.UNAVAILABLE:
            return Unavailable(f"{what}: nothing of it is stored: {detail}")
        return EntityFailed(f"{what}: its shard moved before it was stored")


def fingerprint(state: bytes) -> bytes:
    """Tell states apart without keeping them."""
    return hashlib.blake2b(state, digest_size=16).digest()
