"""The times of durable timers: ``at=``, ``after=``, ``every=`` and ``missed=``, checked."""

from __future__ import annotations

import math
from datetime import UTC, datetime, time, timedelta
from typing import get_args
from zoneinfo import ZoneInfo

from sharding_app.errors import InvalidCall
from sharding_app.protocol.delivery.recurrence import Missed, Recurrence

LEAST_INTERVAL = timedelta(seconds=1)
MOST_SECONDS = timedelta(days=366 * 100).total_seconds()
_FIRST = datetime(1900, 1, 1, tzinfo=UTC)
_LAST = datetime(9900, 1, 1, tzinfo=UTC)


class Daily:
    """A time of day in a time zone, for ``every=``: ``Daily("07:00", tz="Europe/Berlin")``."""

    __slots__ = ("day_at", "tz")

    def __init__(self, day_at: str | time, *, tz: str) -> None:
        self.day_at = _time_of_day(day_at)
        self.tz = _zone(tz)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Daily):
            return NotImplemented
        return (self.day_at, self.tz) == (other.day_at, other.tz)

    def __hash__(self) -> int:
        return hash((self.day_at, self.tz))

    def __repr__(self) -> str:
        return f"Daily({self.day_at!r}, tz={self.tz!r})"


def moment(at: object, after: object) -> tuple[datetime | None, float]:
    """Return when a timer fires that fires once: at a time, or some seconds after the commit."""
    if (at is None) == (after is None):
        raise InvalidCall(
            "say when: either at=, a datetime, or after=, a number of seconds or a timedelta"
            if at is None
            else "say when in one way: at= or after=, not both"
        )
    if at is None:
        return None, _seconds(after)
    if not isinstance(at, datetime):
        raise InvalidCall(f"at= must be a datetime, not {at!r}: for a delay use after=")
    if at.utcoffset() is None:
        raise InvalidCall(
            f"at={at.isoformat()!r} has no time zone, so it names no moment: use an aware datetime,"
            " such as django.utils.timezone.now() + timedelta(days=1)"
        )
    # Near the ends of the calendar a time may have no date in the zone of the server.
    if not _FIRST <= at <= _LAST:
        raise InvalidCall(f"at={at.isoformat()!r} must be from {_FIRST:%Y-%m-%d} to {_LAST:%Y-%m-%d}")
    return at, 0.0


def recurrence(every: object, missed: object = "once") -> Recurrence:
    """Return the spec of a repeating timer."""
    if missed not in get_args(Missed):
        raise InvalidCall(f"missed= must be 'once', 'all' or 'skip', not {missed!r}")
    said: Missed = missed  # type: ignore[assignment]
    if isinstance(every, Daily):
        return Recurrence(day_at=every.day_at, tz=every.tz, missed=said)
    if not isinstance(every, timedelta):
        raise InvalidCall(f"every= must be a timedelta or Daily('07:00', tz='Europe/Berlin'), not {every!r}")
    if every < LEAST_INTERVAL:
        raise InvalidCall(f"every={every!r} is too short: a durable timer repeats at most once a second")
    _seconds(every)
    return Recurrence(seconds=every.total_seconds(), missed=said)


def _seconds(after: object) -> float:
    seconds = after.total_seconds() if isinstance(after, timedelta) else after
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise InvalidCall(f"after= must be a number of seconds or a timedelta, not {after!r}")
    if not (math.isfinite(seconds) and 0 <= seconds <= MOST_SECONDS):
        raise InvalidCall(f"after= must be from 0 seconds to 100 years, not {after!r}")
    return float(seconds)


def _time_of_day(day_at: object) -> str:
    try:
        found = time.fromisoformat(day_at) if isinstance(day_at, str) else day_at
    except ValueError:
        found = None
    if not isinstance(found, time):
        raise InvalidCall(f"a time of day is written as '07:00' or '07:00:30', not {day_at!r}")
    if found.tzinfo is not None:
        raise InvalidCall(f"the time of day {found} has a time zone of its own: name it as tz= instead")
    return found.isoformat("auto" if found.microsecond or found.second else "minutes")


def _zone(tz: object) -> str:
    try:
        if not isinstance(tz, str):
            raise TypeError
        ZoneInfo(tz)
    except (TypeError, ValueError, OSError, KeyError) as error:  # ZoneInfoNotFoundError is a KeyError
        raise InvalidCall(
            f"no time zone {tz!r} is known here: use a name such as 'Europe/Berlin' or 'UTC'"
        ) from error
    return tz
