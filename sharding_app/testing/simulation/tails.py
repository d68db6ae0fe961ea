"""Lost tails of a server that a home without news of the promotion still answers from.

While no other home has started there is one state of the entity, the one in that home's memory. For
callers the loss takes effect when that home handles nothing more. So its answers are dated before
the loss; those of any other home are not. A fenced query is right in every case.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sharding_app.testing.simulation import promises
from sharding_app.testing.simulation.overlaps import FENCED
from sharding_app.testing.simulation.promises import Call, Entry


class Tail:
    __slots__ = ("answered", "entries", "over", "until")

    def __init__(self, entries: Sequence[Entry], answered: Iterable[Call], now: float) -> None:
        self.entries = tuple(entries)
        "As they were before the promotion."
        self.answered = list(answered)
        "Calls whose answers these entries show."
        self.until = now
        "Time at which the home without the news has last begun to handle something."
        self.over = False
        "A home with the news has handled something."


class Tails:
    def __init__(self) -> None:
        self._of: dict[str, Tail] = {}

    def lost(self, entity: str, entries: Sequence[Entry], answered: Iterable[Call], now: float) -> None:
        self._of[entity] = Tail(entries, answered, now)

    def handles(self, entity: str, *, aware: bool, now: float) -> None:
        """Note that a home begins to handle something. `aware`: it knows of the promotion."""
        tail = self._of.get(entity)
        if tail is None or tail.over:
            return
        if aware:
            tail.over = True
        else:
            tail.until = now

    def of(self, query: Call) -> Tail | None:
        """Return the tail that a home without the news may have answered from, to a call before its
        last handling.
        """
        tail = self._of.get(query.entity)
        if tail is None or query.command == FENCED or query.began > tail.until:
            return None
        return tail if promises.is_of(query, tail.entries) else None
