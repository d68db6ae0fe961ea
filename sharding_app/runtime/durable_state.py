"""Entities whose value is stored as a whole: a command stages the new value if it differs from the one stored last."""

import hashlib

from sharding_app.core.shard import Slot
from sharding_app.errors import NotStorable
from sharding_app.model.staging import Record, Staging
from sharding_app.model.types import EntityType

STATE = "state"
"""The name under which a durable-state entity's values stand in the journal."""


class DurableState:
    def __init__(self, entity_type: EntityType, max_bytes: int) -> None:
        self._type = entity_type
        self._max_bytes = max_bytes

    def stage(self, slot: Slot, staging: Staging) -> None:
        """Stage the state if that differs from what was stored last."""
        record = self.record(slot)
        mark = fingerprint(record[2])
        if mark != slot.stored or staging.also:
            staging.records = [record]
            slot.stored = mark

    def record(self, slot: Slot) -> Record:
        """The present state."""
        state = self._type.dump_state(slot.entity)
        if len(state) > self._max_bytes:
            raise NotStorable(
                f"{self._type.name} {slot.id!r}: its state has {len(state)} bytes, more than the {self._max_bytes}"
                " of MAX_STATE_BYTES: nothing of the command is stored",
                code="state_too_large",
            )
        return STATE, 1, state, None

    def as_stored(self, slot: Slot) -> bool:
        """Whether an entity is as it was before a command that failed."""
        try:
            return fingerprint(self._type.dump_state(slot.entity)) == slot.stored
        except BaseException:  # noqa: BLE001  (a user's `snapshot()` may raise anything)
            return False


def fingerprint(state: bytes) -> bytes:
    """Tell states apart without keeping them."""
    return hashlib.blake2b(state, digest_size=16).digest()
