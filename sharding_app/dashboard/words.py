"""Numbers and moments in words: short enough for a table, exact enough at three in the morning.
Pure.
"""

from datetime import datetime, timedelta

NOTHING = "–"


def count(number: float | None) -> str:
    """1,234,567"""
    return NOTHING if number is None else f"{round(number):,}"


def rate(number: float | None) -> str:
    """A number for each second, with three digits."""
    if number is None:
        return NOTHING
    if number and number < 10:
        return f"{number:.2g}" if number < 1 else f"{number:.1f}"
    return f"{round(number):,}"


def duration(seconds: float | None) -> str:
    """1.2 ms"""
    if seconds is None:
        return NOTHING
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{_three(seconds / size)} {unit}"
    return f"{_three(seconds * 1e6)} µs" if seconds else "0 s"


def size(number: float | None) -> str:
    """103 MB"""
    if number is None:
        return NOTHING
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{_three(number)} {unit}"
        number /= 1000
    return f"{_three(number)} TB"


def percent(share: float | None) -> str:
    if share is None:
        return NOTHING
    return f"{share:.1%}" if 0 < share < 0.1 else f"{share:.0%}"


def age(since: datetime | None, now: datetime) -> str:
    """3 min: how long something has been so."""
    return NOTHING if since is None else span(now - since)


def span(passed: timedelta) -> str:
    seconds = max(0, round(passed.total_seconds()))
    for unit, size_ in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size_:
            return f"{seconds // size_} {unit}"
    return f"{seconds} s"


def _three(number: float) -> str:
    """At most three digits that count."""
    if number >= 100:
        return f"{round(number)}"
    return f"{number:.3g}" if number >= 10 else f"{number:.2g}"


def letter(place: int) -> str:
    """A node's sign: A to Z, then A2 and so on."""
    again, index = divmod(place, 26)
    return chr(ord("A") + index) + (str(again + 1) if again else "")
