"""What was lost with the tail of a server, and is still answered by a home that has not heard of the promotion.

As long as no other home has started there is one state of the entity, the one in that home's memory. For those who ask, the
loss takes effect when that home handles nothing more. So what it answers is dated before the loss; what any other home
answers is not. A fenced query sees through it.
"""

from __future__ import annotations

from collections.abc import Sequence

from sharding_app.simulation import promises
from sharding_app.simulation.overlaps import FENCED
from sharding_app.simulation.promises import Call, Entry


class _Tail:
    __slots__ = ("entries", "over", "until")

    def __init__(self, entries: Sequence[Entry], now: float) -> None:
        self.entries = tuple(entries)
        "As they were before the promotion."
        self.until = now
        "When the home that has not heard of it has begun to handle something last."
        self.over = False
        "A home that has heard of it has handled something."


class Tails:
    def __init__(self) -> None:
        self._of: dict[str, _Tail] = {}

    def lost(self, entity: str, entries: Sequence[Entry], now: float) -> None:
        self._of[entity] = _Tail(entries, now)

    def handles(self, entity: str, *, aware: bool, now: float) -> None:
        """A home begins to handle something, one that has heard of the promotion or has not."""
        tail = self._of.get(entity)
        if tail is None or tail.over:
            return
        if aware:
            tail.over = True
        else:
            tail.until = now

    def answered(self, query: Call) -> bool:
        """Whether this is the answer of a home that has not heard: of what is lost, and asked before its last handling."""
        tail = self._of.get(query.entity)
        if tail is None or query.command == FENCED:
            return False
        return query.began <= tail.until and promises.is_of(query, tail.entries)
