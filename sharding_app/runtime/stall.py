"""For how long the main loop has stood still, as the lifeline sees it: a loop that does not turn again is no node."""

from sharding_app.runtime.lifeline_types import Heart


class Stall:
    """Counts the time in which we turned and the main loop did not. A pause of the whole process is no stall."""

    def __init__(self, heart: Heart | None, now: float, look_seconds: float, limit_seconds: float) -> None:
        """`look_seconds`: how often it is looked at, about; more than that is never counted for one look."""
        self._heart = heart
        self._look_seconds = look_seconds
        self._limit = limit_seconds
        self._beat = float("nan")
        self._looked = now
        self._seconds = 0.0

    def goes_on(self, now: float) -> bool:
        """Look at the heart; True: it has stood still for longer than the limit."""
        if self._heart is None:
            return False
        beat = self._heart.beat
        passed, self._looked = now - self._looked, now
        if beat != self._beat:
            self._beat, self._seconds = beat, 0.0
            return False
        before, self._seconds = self._seconds, self._seconds + min(passed, self._look_seconds)
        if before < self._limit <= self._seconds:
            self._heart.report_stall(self._seconds)
        return self._seconds >= self._limit
