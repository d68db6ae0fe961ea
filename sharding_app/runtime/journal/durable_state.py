"""Durable-state entities: a command stages the whole value if it differs from the stored one."""

import hashlib

from sharding_app.entities.entity_type import EntityType
from sharding_app.entities.staging import Record, Staging
from sharding_app.runtime.base.sizes import state_too_large
from sharding_app.runtime.journal.commits import Resident

STATE = "state"
"""The name under which the journal holds a durable-state entity's values."""


class DurableState:
    def __init__(self, entity_type: EntityType, max_bytes: int) -> None:
        self._type = entity_type
        self._max_bytes = max_bytes

    def stage(self, slot: Resident, staging: Staging) -> None:
        """Stage the state if it differs from the stored one, or if `also` writes rows with it."""
        record = self.record(slot)
        mark = fingerprint(record[2])
        if mark != slot.stored or staging.in_transaction:
            staging.records = [record]
            slot.stored = mark

    def record(self, slot: Resident) -> Record:
        """Return the present state as a record."""
        state = self._type.dump_state(slot.entity)
        if len(state) > self._max_bytes:
            raise state_too_large(self._type.name, slot.id, len(state), self._max_bytes)
        return STATE, 1, state, None

    def as_stored(self, slot: Resident) -> bool:
        """Whether the state of an entity whose command failed is still the stored one."""
        try:
            return fingerprint(self._type.dump_state(slot.entity)) == slot.stored
        except BaseException:  # noqa: BLE001  (a user's `snapshot()` may raise anything)
            return False


def fingerprint(state: bytes) -> bytes:
    """Return a digest that tells states apart without keeping them."""
    return hashlib.blake2b(state, digest_size=16).digest()
