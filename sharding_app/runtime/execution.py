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
from typing import Any, cast

import msgspec

from sharding_app.core.ids import Incarnation
from sharding_app.core.messages import Answer, Deliver, Failed, HandBack
from sharding_app.core.shard import Slot
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
from sharding_app.runtime.commits import CommandCommit, number_rows
from sharding_app.runtime.journal_writer import JournalWriter, NotCommitted
from sharding_app.runtime.message_handler import MessageHandler
from sharding_app.runtime.owner import Owner, Together, Watch
from sharding_app.runtime.snapshots import Snapshots
from sharding_app.runtime.waiting import WaitingCommands

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
        *,
        command_window_seconds: float,
        pipeline_limit: int,
        together: Together | None = None,
    ) -> None:
        self.type = entity_type
        self.type_id = type_id
        self.owner = owner
        self.counters: Counter[str] = Counter()
        self.writer = writer
        self.watch = watch
        self.snapshots = Snapshots(entity_type, type_id, journal, command_window_seconds)
        self._commands: dict[str, Handler] = dict(entity_type.commands)
        if entity_type.receives:
            self._commands[MESSAGE] = cast(Handler, MessageHandler(entity_type))
        self._durable = entity_type.kind == "durable_state"
        self._pipelined = bool(entity_type.settings.pipelined)
        self._pipeline_limit = pipeline_limit
        self._staging = Staging(self._commit_too_late)
        self._waiting = WaitingCommands(self, journal, command_window_seconds, together)

    # -- One command -----------------------------------------------------------------------------------------------

    def run(self, slot: Slot, source: Incarnation, message: Deliver) -> bool:
        """Handle one envelope. True: the entity may go on; False: it stays busy with this one."""
        handler = self._commands.get(message.command)
        if handler is None and message.command in (EXISTS, START):
            self.answer(source, message, b"1" if slot.seq else b"")
            return True
        try:
            if handler is None:
                handler = self.type.handler(message.command)  # raises, naming what there is
            args = handler.decode(message.args)
        except ShardingError as error:
            self.fail(source, message, error)
            return True
        if message.command_id and not handler.is_query and self.type.kind != "memory":
            self.owner.spawn(self._waiting.run_again(slot, source, message, handler, args))
            return False
        return self.start(slot, source, message, handler, args)

    def start(
        self, slot: Slot, source: Incarnation, message: Deliver, handler: Handler, args: tuple[Any, ...]
    ) -> bool:
        if handler.is_async or handler.thread or handler.fenced:
            self.owner.spawn(self._waiting.run(slot, source, message, handler, args))
            return False
        entity: Any = slot.entity
        staging = self._staging
        entity._sharding_staging = None if handler.is_query else staging
        self.watch.running = (self.type.name, handler.name)
        try:
            result = handler.function(entity, *args)
            if staging.broken is not None:
                raise staging.broken
            value = handler.encode_result(result)
            if self._durable and not handler.is_query:
                self.stage_state(slot, staging)
        except Exception as error:  # noqa: BLE001  (whatever a handler raises, it fails that command only)
            staged = bool(staging.records) or staging.broken is not None
            staging.clear()
            return self.raised(slot, source, message, error, staged=staged)
        finally:
            self.watch.running = None
            entity._sharding_staging = None
        if staging.also:
            mine, self._staging = staging, Staging(self._commit_too_late)
            self.owner.spawn(self._waiting.finish_together(slot, source, message, mine, value))
            return False
        records = staging.records
        if not records:
            self.answer_seen(slot, source, message, value)
            return True
        staging.records = []
        return self.commit(slot, source, message, records, value)

    def commit(
        self, slot: Slot, source: Incarnation, message: Deliver, records: list[Record], value: bytes
    ) -> bool:
        """Put a command's last records into the journal; the answer follows."""
        command_id = message.command_id or f"{source}:{message.request}"
        rows = number_rows(self.type_id, slot, records, command_id, message.command, value, partial=False)
        commit = CommandCommit(slot, rows, self, source, message, value)
        self.snapshots.note(slot, records[-1][3])
        self.writer.put(commit)
        if self._pipelined and slot.pending < self._pipeline_limit:
            commit.overlapping = True
            slot.shard.overlaps(slot)
            slot.tail = commit
            return True
        return False

    def stage_state(self, slot: Slot, staging: Staging) -> None:
        """A durable-state entity stages its state if that differs from what was stored last."""
        state = self.type.dump_state(slot.entity)
        mark = fingerprint(state)
        if mark != slot.stored or staging.also:
            staging.records = [(STATE, 1, state, None)]
            slot.stored = mark

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
            logger.error(
                "%s.%s raised %s", self.type.name, message.command, type(error).__qualname__,
                exc_info=error, extra={"action": "handler_failed", "entity_type": self.type.name},
            )  # fmt: skip
        self.fail(source, message, failed)
        kept = isinstance(error, Rejected | NotStorable) and not staged
        if kept and self._durable and fingerprint(self.type.dump_state(slot.entity)) != slot.stored:
            kept = False
        if not kept:
            self.owner.reload(slot)
        return kept

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
            self.snapshots.take(slot, if_settled=slot.pending == 1)
            self.owner.settled(slot)
        else:
            self.snapshots.take(slot)
            self.owner.finished(slot)

    def not_committed(self, commit: CommandCommit, why: NotCommitted, detail: str) -> None:
        slot = commit.slot
        current = commit.generation == slot.generation
        if why is NotCommitted.FENCED:
            self.hand_back(commit.source, commit.message)
            if current:
                self.owner.fenced(slot)
            return
        self.fail(commit.source, commit.message, self.refusal(slot, commit.message, why, detail))
        if current:
            self.owner.reload(slot)

    def answer_seen(self, slot: Slot, source: Incarnation, message: Deliver, value: bytes) -> None:
        """Answer what persisted nothing: at once, or when what it has seen is committed."""
        tail = slot.tail
        if tail is None:
            self.answer(source, message, value)
            return

        def follow(why: NotCommitted | None) -> None:
            if why is None:
                self.answer(source, message, value)
            elif why is NotCommitted.FENCED:
                self.hand_back(source, message)
            else:
                self.fail(source, message, self.refusal(slot, message, NotCommitted.SUPERSEDED, ""))

        cast(CommandCommit, tail).follow(follow)

    def abandoned(self, source: Incarnation, message: Deliver, *, partly: bool) -> None:
        """The object was thrown away while its command waited for something: nothing (more) of it is stored."""
        if partly:
            self.fail(
                source, message, PartlyApplied(f"{message.command} had committed a part when its shard moved")
            )
        else:
            self.hand_back(source, message)

    def answer(self, source: Incarnation, message: Deliver, value: bytes) -> None:
        if message.timeout_ms:
            self.owner.send(source, Answer(message.request, value))
        else:
            self.owner.done(source, message.request)

    def fail(self, source: Incarnation, message: Deliver, error: ShardingError) -> None:
        kind, text, params = to_wire(error)
        packed = msgspec.msgpack.encode(params) if params else b""
        self.owner.send(source, Failed(message.request, kind, text, packed))

    def hand_back(self, source: Incarnation, message: Deliver) -> None:
        self.owner.send(source, HandBack(message.type, message.shard, message.epoch, [message.request]))

    def refusal(
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


def fingerprint(state: bytes) -> bytes:
    """Tell states apart without keeping them."""
    return hashlib.blake2b(state, digest_size=16).digest()
