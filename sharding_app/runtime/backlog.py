"""How much waits here of each peer's commands: its links' credit is less by it, so that a flood waits at its source."""

from collections.abc import Iterable

from sharding_app.core.ids import Incarnation
from sharding_app.core.messages import Deliver

OVERHEAD_BYTES = 200


class Backlog:
    """Bytes of envelopes that wait in mailboxes, by the process that sent them."""

    __slots__ = ("_bytes",)

    def __init__(self) -> None:
        self._bytes: dict[Incarnation, int] = {}

    def of(self, source: Incarnation) -> int:
        return self._bytes.get(source, 0)

    def waits(self, source: Incarnation, message: Deliver) -> None:
        self._bytes[source] = self._bytes.get(source, 0) + len(message.args) + OVERHEAD_BYTES

    def taken(self, source: Incarnation, message: Deliver) -> None:
        """It waits no longer. What was never counted (a stop message of our own) counts for nothing."""
        left = self._bytes.get(source, 0) - len(message.args) - OVERHEAD_BYTES
        if left > 0:
            self._bytes[source] = left
        else:
            self._bytes.pop(source, None)

    def all_taken(self, works: Iterable[tuple[Incarnation, Deliver]]) -> None:
        for source, message in works:
            self.taken(source, message)
