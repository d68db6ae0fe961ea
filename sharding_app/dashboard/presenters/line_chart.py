"""A chart as numbers for an SVG picture: an axis with round numbers, lines with gaps. Pure.

One slot of the time is one unit wide. The words are the caller's.
"""

from collections.abc import Sequence
from math import ceil, floor, log10
from typing import NamedTuple

LEFT, TOP, HEIGHT = 52, 8, 96
MOST_STEPS = 4


class Tick(NamedTuple):
    value: float
    y: int


class Axis(NamedTuple):
    top: float
    ticks: tuple[Tick, ...]


def axis(most: float, least: float) -> Axis:
    """Return an axis from 0 to a round number at or above `most`, and at least `least`."""
    most = max(most, least)
    rough = most / MOST_STEPS
    power = 10.0 ** floor(log10(rough))
    # The tolerance: 0.3 / 0.1 is a little more than 3.
    step = next(
        factor * power for factor in (1, 2, 5, 10) if factor * power * MOST_STEPS >= most * (1 - 1e-9)
    )
    if least >= 1:
        step = max(1.0, step)
    steps = ceil(most / step - 1e-9)
    top = step * steps
    return Axis(top, tuple(Tick(step * number, height(step * number, top)) for number in range(steps + 1)))


def height(value: float, top: float) -> int:
    """Return the place of a value, from above."""
    return TOP + HEIGHT - round(HEIGHT * min(1.0, max(0.0, value / top)))


def line(values: Sequence[float | None], top: float) -> str:
    """Return a line as the data of an SVG path, with a gap where a value is not known.

    A value between two gaps is a dot. Points between two others of their height are left out.
    """
    parts: list[str] = []
    start = 0
    while start < len(values):
        if values[start] is None:
            start += 1
            continue
        end = start
        while end < len(values) and values[end] is not None:
            end += 1
        parts.append(_stroke([height(value, top) for value in values[start:end] if value is not None], start))
        start = end
    return "".join(parts)


def _stroke(heights: Sequence[int], start: int) -> str:
    found = [f"M{LEFT + start} {heights[0]}"]
    if len(heights) == 1:
        found.append("h.1")
    x = y = 0
    y = heights[0]
    for number, here in enumerate(heights[1:], 1):
        follows = heights[number + 1] if number + 1 < len(heights) else None
        if here == y and follows == y:
            continue
        found.append(f"h{number - x}" if here == y else f"l{number - x} {here - y}")
        x, y = number, here
    return "".join(found)


def marks(slots: Sequence[int]) -> str:
    """Return marks on the axis of time, from top to bottom, as the data of an SVG path."""
    return "".join(f"M{LEFT + slot} {TOP}v{HEIGHT}" for slot in sorted(set(slots)))
