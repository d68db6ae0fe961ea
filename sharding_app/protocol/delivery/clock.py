"""The server's clock as a node estimates it: never ahead of the server, unless that steps back."""

DRIFT = 1e-3
"""The rates of the two clocks are assumed to differ by less than this."""
STEP_SECONDS = 1.0
"""A reading that is further back than this is a clock that was set back, not a slow answer."""


class ServerClock:
    __slots__ = ("_at", "_heard")

    def __init__(self) -> None:
        self._at: float | None = None
        self._heard = 0.0

    @property
    def known(self) -> bool:
        return self._at is not None

    def heard(self, at: float, now: float) -> None:
        """Take the server's time from an answer that has come now, by the node's own clock."""
        if self._at is None or not self.low(now) - STEP_SECONDS < at <= self.low(now):
            self._at, self._heard = at, now

    def low(self, now: float) -> float:
        """Return a time that the server has reached."""
        if self._at is None:
            return float("-inf")
        return self._at + (now - self._heard) * (1 - DRIFT)

    def wait(self, until: float, now: float) -> float:
        """Return the seconds until `low` has reached a time."""
        return max(0.0, until - self.low(now)) / (1 - DRIFT)
