"""Time as the runtime sees it."""

from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Return seconds on a clock that never steps and that counts the time when the machine was
        suspended.
        """
        ...
