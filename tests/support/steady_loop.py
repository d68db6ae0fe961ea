"""A loop whose time stands still while the machine does other things.

The clusters of the unit tests live in one process. Where that gets no processor for some seconds,
no time must pass for them: else nodes lose leases, and calls their time, that have nothing to do
with what a test shows.
"""

import math
import time

from sharding_app.testing.clock import TravelLoop

MOMENT_SECONDS = 0.005
"So long goes a step of the loop on at most, as its clock sees it."


class SteadyLoop(TravelLoop):
    """Of real time, only that passes for which the loop sleeps, and moments."""

    def __init__(self) -> None:
        self._seen = time.monotonic()
        self._sleeps = 0.0
        self._stalled = 0.0
        super().__init__()

    def time(self) -> float:
        now = time.monotonic()
        self._stalled += max(0.0, now - self._seen - self._sleeps - MOMENT_SECONDS)
        self._seen, self._sleeps = now, 0.0
        return now - self._stalled + self._skipped

    def _skip(self, timeout: float | None) -> float | None:
        sleeps = super()._skip(timeout)
        self._sleeps = math.inf if sleeps is None else sleeps
        return sleeps
