"""The sabotages can be made, and their page says what came of them."""

from pathlib import Path

import pytest

from tests.house.sabotages import DATA, HEAD, TOLD, faults, read
from tests.house.trials import Trial, told, write

ONE = """
[[sabotage]]
out = "the one"
file = "a.py"
old = "x = 1"
new = "x = 2"
tests = ["test_a.py::test_x"]
"""


def all_sabotages() -> list[Trial]:
    return read(DATA.read_text(encoding="utf-8"))


def test_each_can_be_made_and_names_tests_that_are_there() -> None:
    assert faults(all_sabotages()) == []


def test_no_two_are_the_same() -> None:
    made = all_sabotages()
    assert len({each.out for each in made}) == len({each.change for each in made}) == len(made)


def test_the_page_says_of_each_that_its_tests_have_noticed() -> None:
    text = TOLD.read_text(encoding="utf-8")
    assert text == write(all_sabotages(), told(text), HEAD), "python -m tests.house.sabotages --write"
    assert "not tried yet" not in text
    assert "| **" not in text
    assert ", **" not in text


@pytest.mark.parametrize(
    ("source", "test", "wrong"),
    [
        ("x = 1", "def test_x() -> None:\n    assert len([])", []),
        ("x = 1", "def test_x() -> None:\n    assert 1", ["1: test_x asserts nothing"]),
        ("x = 1", "def test_y() -> None:\n    assert len([])", ["1: test_a.py has no test_x"]),
        ("x = 1", "", ["1: test_a.py does not exist"]),
        (
            "x = 3",
            "def test_x() -> None:\n    assert len([])",
            ["1: the one: a.py has the text to replace 0 times"],
        ),
    ],
)
def test_one_that_cannot_be_made_or_whose_test_is_none_is_told(
    source: str, test: str, wrong: list[str], tmp_path: Path
) -> None:
    (tmp_path / "a.py").write_text(source)
    if test:
        (tmp_path / "test_a.py").write_text(test)
    found = faults(read(ONE), tmp_path)
    assert len(found) == len(wrong)
    assert all(told.startswith(expected) for told, expected in zip(found, wrong, strict=True))


def test_one_that_names_no_test_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1")
    assert faults(read(ONE.replace('"test_a.py::test_x"', "")), tmp_path) == [
        "1: the one: which test notices?"
    ]
