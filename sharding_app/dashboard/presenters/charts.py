"""Small charts as the points of a line: the last looks, oldest first. A gap in what is known is a
gap in the line.
"""

from collections.abc import Callable, Sequence

from sharding_app.dashboard.presenters.homes import View
from sharding_app.operations.cache import KEPT_SAMPLES, Sample

WIDTH, HEIGHT = 120.0, 32.0
OF: dict[str, Callable[[Sample], float | None]] = {
    "commands": lambda sample: sample.commands,
    "appends": lambda sample: sample.appends,
    "p99": lambda sample: sample.p99,
}


def chart(samples: Sequence[Sample], key: str) -> View | None:
    """The line of one figure; None while there is nothing to draw."""
    values = [OF[key](sample) for sample in samples]
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return None
    top = max(known) or 1.0
    step = WIDTH / (KEPT_SAMPLES - 1)
    first = KEPT_SAMPLES - len(values)
    points = [
        f"{(first + number) * step:.1f},{HEIGHT - 1 - (HEIGHT - 3) * value / top:.1f}"
        for number, value in enumerate(values)
        if value is not None
    ]
    return {
        "points": " ".join(points),
        "width": WIDTH,
        "height": HEIGHT,
        "low": min(known),
        "top": max(known),
    }
