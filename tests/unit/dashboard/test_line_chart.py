"""A chart's axis, line and marks as numbers."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharding_app.dashboard.presenters.line_chart import HEIGHT, LEFT, TOP, axis, line, marks

BOTTOM = TOP + HEIGHT


@pytest.mark.parametrize(
    ("most", "least", "values"),
    [
        (0.0, 1, [0, 1]),
        (3.0, 1, [0, 1, 2, 3]),
        (37.0, 1, [0, 10, 20, 30, 40]),
        (1201.0, 1, [0, 500, 1000, 1500]),
        (0.3, 0.001, [0, 0.1, 0.2, 0.3]),
        (0.0, 0.001, [0, 0.0005, 0.001]),
        (0.0042, 0.001, [0, 0.002, 0.004, 0.006]),
    ],
)
def test_the_axis_has_few_round_numbers(most: float, least: float, values: list[float]) -> None:
    found = axis(most, least)
    assert [tick.value for tick in found.ticks] == pytest.approx(values)
    assert (found.ticks[0].y, found.ticks[-1].y) == (BOTTOM, TOP)


@given(st.floats(0, 1e15), st.sampled_from([0.001, 0.1, 1.0, 1e6]))
def test_every_value_is_below_the_top_of_its_axis(most: float, least: float) -> None:
    found = axis(most, least)
    assert max(most, least) <= found.top * (1 + 1e-9)
    assert 2 <= len(found.ticks) <= 5


def test_a_line_goes_from_slot_to_slot() -> None:
    assert line([0.0, 10.0, 5.0], 10.0) == f"M{LEFT} {BOTTOM}l1 -96l1 48"


def test_a_gap_is_a_gap_and_a_lone_value_a_dot() -> None:
    found = line([None, 10.0, 10.0, None, 5.0, None], 10.0)
    assert found == f"M{LEFT + 1} {TOP}h1M{LEFT + 4} {TOP + HEIGHT // 2}h.1"


def test_nothing_known_is_no_line() -> None:
    assert line([None, None], 1.0) == ""
    assert line([], 1.0) == ""


def test_a_flat_line_is_short() -> None:
    assert line([1.0] * 360, 2.0) == f"M{LEFT} {TOP + HEIGHT // 2}h359"


@given(st.lists(st.none() | st.floats(0, 100), max_size=60))
def test_a_line_passes_through_each_known_value(values: list[float | None]) -> None:
    points = _points(line(values, 100.0))
    known = {number for number, value in enumerate(values) if value is not None}
    assert set(points) == known
    for number in known:
        value = values[number]
        assert value is not None
        assert points[number] == BOTTOM - round(HEIGHT * value / 100)


def _points(path: str) -> dict[int, int]:
    """Return the height at each slot that a path passes; between two points of one height too."""
    found: dict[int, int] = {}
    x = y = 0
    for name, text in re.findall(r"([Mhl])([^Mhl]+)", path):
        numbers = [float(each) for each in text.split()]
        if name == "M":
            x, y = int(numbers[0]) - LEFT, int(numbers[1])
        elif name == "h":
            for number in range(int(numbers[0])):
                found[x + number] = y
            x += int(numbers[0])
        else:
            assert numbers[0] == 1, "a slope is between neighbours"
            x, y = x + 1, y + int(numbers[1])
        found[x] = y
    return found


def test_marks_stand_once_in_a_slot() -> None:
    assert marks([7, 3, 7]) == f"M{LEFT + 3} {TOP}v{HEIGHT}M{LEFT + 7} {TOP}v{HEIGHT}"
