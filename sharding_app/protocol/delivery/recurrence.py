"""Repeating timers: the times at which one fires, and what becomes of those that were missed.

A timer repeats after an interval, or daily at a time of day in a time zone. Its spec is stored with
its row as JSON. All functions are pure: the time now is an argument, in any zone.

- An interval counts real seconds from one due time to the next, also over a change of clocks.
- A daily timer fires once for each date of its zone. A time of day that a change of clocks skips
  is taken as much later as the clocks were put forward. Of a time that comes twice, the first
  counts.

An occurrence is missed if the timer could not fire within `LATE_SECONDS` of it, or before the
occurrence after it: no node was up. `missed` says what follows:

- "once": the timer fires at once, one time for all that were missed.
- "all": it fires for each of them, one after the other.
- "skip": it does not fire for them.
"""

from datetime import UTC, datetime, time, timedelta
from typing import Final, Literal, NamedTuple
from zoneinfo import ZoneInfo

import msgspec

Missed = Literal["once", "all", "skip"]

LATE_SECONDS: Final = 60.0
"""An occurrence that is later than this was missed."""
_DAY: Final = timedelta(days=1)


class Recurrence(msgspec.Struct, frozen=True, omit_defaults=True):
    """The spec of a repeating timer: either `seconds`, or `day_at` and `tz`."""

    seconds: float = 0.0
    "Between two due times; 0: it is a daily timer."
    day_at: str = ""
    "The time of day, as in ISO 8601."
    tz: str = ""
    "The name of the zone, as in the time zone database."
    missed: Missed = "once"

    def encode(self) -> str:
        """Return the spec as it is stored: equal specs are equal text."""
        return _write(self).decode()


_write: Final = msgspec.json.Encoder().encode
decode: Final = msgspec.json.Decoder(Recurrence).decode
"""Read a stored spec."""


class Firing(NamedTuple):
    """What a timer does that has come due."""

    runs: bool
    "False: this occurrence was missed and is skipped. Only the timer's due time moves."
    again: datetime
    "Its next due time, in UTC."


def fire(spec: Recurrence, due: datetime, now: datetime) -> Firing:
    """Return what a timer does that was due at `due`, when it can fire at `now`."""
    following = after(spec, due, due)
    if spec.missed == "all":
        return Firing(True, following)
    late = now - due > timedelta(seconds=LATE_SECONDS) or now >= following
    return Firing(not (late and spec.missed == "skip"), max(following, after(spec, due, now)))


def first(spec: Recurrence, now: datetime) -> datetime:
    """Return the first due time of a timer that is set now, in UTC."""
    return after(spec, now, now)


def after(spec: Recurrence, due: datetime, moment: datetime) -> datetime:
    """Return the first due time after a moment, of a timer that was due at `due`; in UTC."""
    if spec.seconds:
        interval = timedelta(seconds=spec.seconds)
        return due.astimezone(UTC) + interval * max(1, (moment - due) // interval + 1)
    zone, of_day = ZoneInfo(spec.tz), time.fromisoformat(spec.day_at)
    # Clocks are never put back by a day, so the date before finds each time that may still come.
    date = moment.astimezone(zone).date() - _DAY
    while True:
        # The fold of a time is 0: the first of two, and before a gap the offset of then.
        found = datetime.combine(date, of_day, zone).astimezone(UTC)
        if found > moment:
            return found
        date += _DAY
