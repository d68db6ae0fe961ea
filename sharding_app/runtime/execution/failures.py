"""Failures of handlers: the error for the caller, and the type's supervision.

A refusal leaves the object as it is, if nothing was staged. The type's supervision judges
everything else: the entity goes on, is rebuilt, stops, or takes the idle entities of its shard with
it. A failed command of a caller never delays the next command. An entity whose own command fails (a
timer's) is rebuilt later with each failure in a row.
"""

import logging
from collections import Counter

from sharding_app.entities.entity_type import EntityType
from sharding_app.errors import PartiallyApplied, ShardingError, to_wire
from sharding_app.protocol.messages import Deliver
from sharding_app.protocol.shard import Slot
from sharding_app.protocol.supervision import Directive, Failures, Supervision
from sharding_app.redaction import traceable
from sharding_app.runtime.execution.owner import Owner
from sharding_app.runtime.execution.state_guard import is_state_changed
from sharding_app.runtime.telemetry.meter import Meter

logger = logging.getLogger("sharding.entity")


class HandlerFailures:
    def __init__(self, entity_type: EntityType, owner: Owner, meter: Meter, counters: Counter[str]) -> None:
        self._type = entity_type
        self._owner = owner
        self._meter = meter
        self._counters = counters
        self._supervision = entity_type.settings.supervision or Supervision()
        self._otherwise: Directive = "restart" if entity_type.kind == "memory" else "resume"
        self._failures = Failures(self._supervision.forgive_after_seconds)

    def error_for(self, slot: Slot, message: Deliver, error: BaseException, *, partly: bool) -> ShardingError:
        """Return the error for the caller; count the exception, and log it for the operator."""
        entity_type = self._type
        failed: ShardingError = entity_type.failed(slot.id, message.command, error)
        if partly:
            text = f"{to_wire(failed).message}; what it had awaited stays"
            failed = PartiallyApplied(text, params=failed.params)
        self._counters["handler_failed"] += 1
        self._meter.trouble(slot.id, message.command, type(error).__qualname__)
        self._owner.listener.entity_failed(entity_type, slot.id, message.command, error)
        logger.error(
            "%s.%s raised %s", entity_type.name, message.command, type(error).__qualname__,
            exc_info=traceable(error), extra={"action": "handler_failed", "entity_type": entity_type.name},
        )  # fmt: skip
        return failed

    def stop_handler_raised(self, slot: Slot, error: BaseException) -> None:
        """Report that an entity stops although its stop handler has raised."""
        entity_type = self._type
        self._counters["stop_handler_failed"] += 1
        self._meter.trouble(slot.id, "", f"stop_handler_failed: {type(error).__qualname__}")
        self._owner.listener.entity_failed(entity_type, slot.id, "", error)
        logger.error(
            "the stop handler of an entity of %s raised %s: the entity has stopped, without what the handler left undone",
            entity_type.name, type(error).__qualname__,
            exc_info=traceable(error), extra={"action": "stop_handler_failed", "entity_type": entity_type.name},
        )  # fmt: skip

    def directive(self, error: BaseException) -> Directive:
        """Return the supervision's decision about the object."""
        if is_state_changed(error):
            return "restart"
        return self._supervision.directive(error, self._otherwise)

    def delay(self, slot: Slot) -> float:
        """Count a failure of an entity's own command; return the seconds until it is rebuilt."""
        return self._supervision.delay(self._failures.count(slot.id, self._owner.now()))

    def did_well(self, entity: str) -> None:
        """Forget an entity's failures: a command that it gave itself has succeeded."""
        self._failures.forgive(entity)
