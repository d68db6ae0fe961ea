"""Entities whose constructor raises for a while, and the errors of callers that this excuses."""

from __future__ import annotations

from collections.abc import Callable

LONGEST_BACKOFF_SECONDS = 1.0
"""Longest back-off of the type whose entities are stubborn."""
SPARE_SECONDS = 1.0


class Stubborn:
    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._present: dict[str, None] = {}
        self._until: dict[str, float] = {}
        self.refused = 0

    def begins(self, entity: str) -> None:
        self._present[entity] = None

    def ends(self, entity: str) -> None:
        if entity in self._present:
            del self._present[entity]
            self._until[entity] = self._now()

    def end_all(self) -> None:
        for entity in list(self._present):
            self.ends(entity)

    def starts(self, entity: str) -> None:
        """Raise if the entity that is constructed is stubborn now."""
        if entity in self._present:
            self.refused += 1
            raise RuntimeError(f"{entity} does not want to")

    def excuses(self, entity: str, since: float) -> bool:
        """Whether a call made at that time may fail because the entity cannot start.

        The entity would not start then, or shortly before.
        """
        last = self._until.get(entity, float("-inf"))
        return entity in self._present or last >= since - LONGEST_BACKOFF_SECONDS - SPARE_SECONDS
