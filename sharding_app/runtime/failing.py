"""A handler has raised: what its asker is told, and what becomes of its object.

A refusal leaves the object as it is, if nothing was staged. Anything else is judged by the type's supervision: the entity
goes on, is rebuilt, stops, or takes the idle ones of its shard with it. What callers asked for never delays the next
command. An entity whose own work fails (a timer's command) is rebuilt later each time that it fails in a row.
"""

import logging
from typing import TYPE_CHECKING, cast

from sharding_app.core.ids import Incarnation
from sharding_app.core.messages import Deliver
from sharding_app.core.shard import Slot
from sharding_app.core.supervision import Directive, Failures, Supervision
from sharding_app.errors import NotStorable, PartlyApplied, Rejected, ShardingError
from sharding_app.quoting import traceable
from sharding_app.runtime.commits import CommandCommit
from sharding_app.runtime.journal_writer import NotCommitted
from sharding_app.runtime.owner import NOBODY

if TYPE_CHECKING:
    from sharding_app.runtime.execution import Execution

logger = logging.getLogger("sharding.entity")


class Failing:
    def __init__(self, execution: "Execution") -> None:
        self._execution = execution
        self._supervision = execution.type.settings.supervision or Supervision()
        self._otherwise: Directive = "restart" if execution.type.kind == "memory" else "resume"
        self._failures = Failures(self._supervision.forgive_after_seconds)

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
        """Answer with the error; True if the object may stay (until its entity stops)."""
        execution = self._execution
        if slot.shard.had_last_word(slot):
            self._stop_handler_raised(slot, error)
            return True
        refused = isinstance(error, Rejected | NotStorable)
        if refused and not partly:
            failed = cast(ShardingError, error)
        else:
            failed = self._failed(slot, message, error, partly=partly)
        execution.answers.fail_seen(slot, source, message, failed)
        directive = "resume" if refused else self._supervision.directive(error, self._otherwise)
        if (
            directive == "resume"
            and not staged
            and (execution.durable is None or execution.durable.as_stored(slot))
        ):
            return True
        if refused:
            self._rebuild(slot)
        else:
            self._supervise(slot, source, directive)
        return False

    def unexpected(self, slot: Slot, source: Incarnation, message: Deliver, error: BaseException) -> None:
        """Something has failed around a handler: it costs this command and this object, whatever it was."""
        failed = self._failed(slot, message, error, partly=False)
        self._execution.answers.fail(source, message, failed)
        if slot.shard.slots.get(slot.id) is slot:
            self._execution.owner.reload(slot)

    def did_well(self, entity: str) -> None:
        """A command that the entity gave itself has succeeded."""
        self._failures.forgive(entity)

    def _stop_handler_raised(self, slot: Slot, error: BaseException) -> None:
        """It was to stop, and has done what it could: it has stopped. Nobody waits for an answer to a stop message."""
        execution, entity_type = self._execution, self._execution.type
        slot.ended = True
        execution.counters["stop_handler_failed"] += 1
        execution.meter.trouble(slot.id, "", f"stop_handler_failed: {type(error).__qualname__}")
        execution.owner.listener.entity_failed(entity_type, slot.id, "", error)
        logger.error(
            "the stop handler of an entity of %s raised %s: the entity has stopped, without what the handler left undone",
            entity_type.name, type(error).__qualname__,
            exc_info=traceable(error), extra={"action": "stop_handler_failed", "entity_type": entity_type.name},
        )  # fmt: skip

    def _failed(self, slot: Slot, message: Deliver, error: BaseException, *, partly: bool) -> ShardingError:
        """The error for the asker; what was raised is counted, and logged for the operator."""
        execution, entity_type = self._execution, self._execution.type
        failed: ShardingError = entity_type.failed(slot.id, message.command, error)
        if partly:
            failed = PartlyApplied(f"{failed.message}; what it had awaited stays", params=failed.params)
        execution.counters["handler_failed"] += 1
        execution.meter.trouble(slot.id, message.command, type(error).__qualname__)
        execution.owner.listener.entity_failed(entity_type, slot.id, message.command, error)
        logger.error(
            "%s.%s raised %s", entity_type.name, message.command, type(error).__qualname__,
            exc_info=traceable(error), extra={"action": "handler_failed", "entity_type": entity_type.name},
        )  # fmt: skip
        return failed

    def _supervise(self, slot: Slot, source: Incarnation, directive: Directive) -> None:
        """A handler has failed: its entity stops or is rebuilt, at once if a caller's command was the reason."""
        owner = self._execution.owner
        if directive == "stop":
            slot.ended = True
            owner.finished(slot)
            return
        if directive == "escalate":
            owner.restart_shard(slot.shard)
        delay = 0.0
        if source == NOBODY:
            delay = self._supervision.delay(self._failures.count(slot.id, owner.now()))
        self._rebuild(slot, delay)

    def _rebuild(self, slot: Slot, delay: float = 0.0) -> None:
        """Throw the object away, once the commits of those before it, which are as good as ever, are through."""
        owner, tail = self._execution.owner, slot.tail
        if tail is None:
            owner.reload(slot, delay)
            return
        generation = slot.generation

        def follow(why: NotCommitted | None) -> None:
            if generation == slot.generation:
                owner.reload(slot, delay)

        cast(CommandCommit, tail).follow(follow)
