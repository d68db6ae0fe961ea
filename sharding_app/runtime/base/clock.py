"""A clock that never steps and that counts the time during which the machine was suspended."""

import functools
import time
from collections.abc import Callable
from datetime import UTC, datetime


def _reader() -> Callable[[], float]:
    """Choose the system's clock.

    Linux: CLOCK_BOOTTIME. Its CLOCK_MONOTONIC stands still while the machine sleeps, and so would a
    lease. macOS: the CLOCK_MONOTONIC of clock_gettime counts on, unlike the one that
    `time.monotonic` uses there.
    """
    for name in ("CLOCK_BOOTTIME", "CLOCK_MONOTONIC"):
        number = getattr(time, name, None)
        if number is not None and hasattr(time, "clock_gettime"):
            return functools.partial(time.clock_gettime, number)
    return time.monotonic


class BootClock:
    """The `Clock` of real processes (`ports.clock`)."""

    __slots__ = ("now",)

    def __init__(self) -> None:
        self.now: Callable[[], float] = _reader()


def utc_now() -> datetime:
    """Return the date by this machine's clock."""
    return datetime.now(UTC)
