"""Running one command on one entity: decode, call, stage, commit; then `runtime.answers` tells who asked.

Contract: an answer that reports success goes out after the commit of all that it has seen. A handler that raises
journals nothing that is still staged, and its object is thrown away and rebuilt if it had staged anything or failed in
any other way than by refusing (`runtime.failing`). `run` says whether the entity may go on to its next envelope; if
not, the owner's `finished` or `reload` is called when it may.

A *pipelined* type goes on while its commit is under way. What later commands and queries answer then waits for the commits
whose state they have seen; if one fails, all behind it fail, and the object is recovered first.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, cast

from sharding_app.core.command_ids import id_of_ours
from sharding_app.core.ids import Incarnation
from sharding_app.core.messages import Deliver
from sharding_app.core.shard import Slot
from sharding_app.core.words import EXISTS, MESSAGE, START
from sharding_app.errors import NotStorable, ShardingError, WrongContext
from sharding_app.model.staging import Record, Staging
from sharding_app.model.types import EntityType, Handler
from sharding_app.ports.journal import Journal
from sharding_app.runtime import calls
from sharding_app.runtime.answers import Answers
from sharding_app.runtime.commits import CommandCommit, number_rows
from sharding_app.runtime.durable_state import DurableState
from sharding_app.runtime.failing import Failing
from sharding_app.runtime.journal_writer import JournalWriter, NotCommitted
from sharding_app.runtime.message_handler import MessageHandler
from sharding_app.runtime.meter import Meter
from sharding_app.runtime.owner import RAISED, Owner, Together, Watch
from sharding_app.runtime.retries import Retries, as_stored
from sharding_app.runtime.snapshots import Snapshots
from sharding_app.runtime.waiting import WaitingCommands, is_gone


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
        self.failing = Failing(self)
        self.answers = Answers(entity_type, owner, meter, self.counters, self.failing.did_well)
        self.durable: DurableState | None = None
        "Of a type whose entities' values are stored as a whole."
        if entity_type.kind == "durable_state":
            self.durable = DurableState(entity_type, max_state_bytes)
        self._commands: dict[str, Handler] = dict(entity_type.commands)
        if entity_type.receives:
            self._commands[MESSAGE] = cast(Handler, MessageHandler(entity_type))
        self._memory = entity_type.kind == "memory"
        self._pipelined = bool(entity_type.settings.pipelined)
        self._pipeline_limit = pipeline_limit
        self._staging = Staging(self._commit_too_late)
        self._waiting = WaitingCommands(self, together)
        self.retries = Retries(self, journal, command_window_seconds)

    # -- One command -----------------------------------------------------------------------------------------------

    def run(self, slot: Slot, source: Incarnation, message: Deliver) -> bool:
        """Handle one envelope. True: the entity may go on; False: it stays busy with this one."""
        if not self.owner.may_begin(slot.shard):
            self.answers.hand_back(source, message)
            return True
        try:
            if message.deadline_ms and message.deadline_ms <= self.owner.now() * 1000:
                self.answers.expired(source, message)
                return True
            handler = self._commands.get(message.command)
            if handler is None and message.command in (EXISTS, START):
                self.answers.answer_seen(slot, source, message, b"1" if slot.seq else b"")
                return True
            try:
                if handler is None:
                    handler = self.type.handler(message.command)  # raises, naming what there is
                args = handler.decode(message.args)
            except ShardingError as error:
                self.answers.refuse(source, message, error)
                return True
            except BaseException as error:  # noqa: BLE001  (types of the user's take part in decoding)
                self.answers.refuse(source, message, self.type.failed(slot.id, message.command, error))
                return True
            if message.command_id and not handler.is_query and not self._memory:
                if self.retries.is_fresh(slot, message):
                    return self.start(slot, source, message, handler, args)
                self.retries.asks(slot, source, message)
                self.owner.spawn(self.retries.run(slot, slot.generation, source, message, handler, args))
                return False
            return self.start(slot, source, message, handler, args)
        except BaseException as error:  # noqa: BLE001  (else the envelopes behind this one would be lost with it)
            self.failing.unexpected(slot, source, message, error)
            return False

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
            if self.durable is not None and not handler.is_query:
                self.durable.stage(slot, staging)
            if staging.records and len(value) > self.max_reply:
                raise self.reply_too_large(message, value)
        except RAISED as error:
            staged = bool(staging.records) or staging.broken is not None
            staging.clear()
            return self.failing.raised(slot, source, message, error, staged=staged)
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
            self.answers.answer_seen(slot, source, message, value)
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
        command_id = message.command_id or id_of_ours(source, message.request)
        said = message.command if not message.command_id else self.said(message)
        rows = number_rows(self.type_id, slot, records, command_id, said, value, partial=False)
        self.retries.note(slot, message)
        commit = CommandCommit(slot, rows, self, source, message, value)
        commit.partly = partly
        commit.snapshot = self.snapshots.due(slot, records[-1])
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
        self.answers.answer(commit.source, commit.message, commit.value)
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
            self.answers.hand_back(commit.source, commit.message)
        else:
            refusal = self.answers.refusal(slot, commit.message, why, detail, partly=commit.partly)
            self.answers.fail(commit.source, commit.message, refusal)
        if current:
            if why is NotCommitted.FENCED:
                self.owner.fenced(slot)
            else:
                self.owner.reload(slot)

    def too_late(self, slot: Slot, source: Incarnation, message: Deliver) -> None:
        """The shard's lease was lost before the command began: it goes to the shard's next home."""
        self.answers.hand_back(source, message)
        self.owner.finished(slot)

    def outdate(self, slot: Slot, then: Callable[[], None]) -> bool:
        """The object is out of date: see `WaitingCommands.outdate`."""
        return self._waiting.outdate(slot, then)

    def give_up(self, slot: Slot) -> None:
        """Tell whoever waits for the command that runs now that it is not waited for any longer."""
        found = self._waiting.give_up(slot)
        if found is not None:
            self.answers.given_up(
                slot, found.source, found.message, partly=found.steps > 0, in_doubt=found.in_doubt
            )
