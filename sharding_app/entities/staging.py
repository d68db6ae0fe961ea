"""`Staging`: holds the events that a command has persisted, until the host commits them.

The host attaches one to an entity before it runs a command handler and takes it away afterwards;
without one, `persist` refuses. The host reads `records` (and `in_transaction`), commits, and calls
`clear`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeAlias

#: One staged event: its name, version and JSON for the journal, and the event itself.
Record: TypeAlias = tuple[str, int, bytes, object]


class Staging:
    """The events that one entity has staged since its last commit; awaiting it commits now."""

    __slots__ = ("broken", "commit", "in_transaction", "records")

    def __init__(self, commit: Callable[[Staging], Awaitable[None]]) -> None:
        #: Staged events in order.
        self.records: list[Record] = []
        #: Functions to run in the transaction of the next commit.
        self.in_transaction: list[Callable[[], object]] = []
        #: Set when an applier raised: the state is half changed, so the command must fail.
        self.broken: BaseException | None = None
        #: The host's function that commits the staged events, then clears them.
        self.commit = commit

    def __await__(self) -> Generator[Any, Any, None]:
        return self.commit(self).__await__()

    def clear(self) -> None:
        """Forget the staged events: they are committed, or dropped."""
        self.records = []
        self.in_transaction = []
        self.broken = None
