"""docs/conformance.md is whole, and what it calls tested is."""

from pathlib import Path

import pytest

from tests.house.conformance import PAGE, ROWS, faults, gaps, report, rows

TEXT = PAGE.read_text(encoding="utf-8")


def test_every_row_stands_there_once_and_its_tests_assert_something() -> None:
    assert faults(TEXT) == []
    assert len(rows(TEXT)) == len(ROWS)


def test_what_is_not_done_is_counted() -> None:
    page = "| A1.1 | x | not yet |  |\n| A1.2 | x | tested | `a.py::test_a` |\n| A1.3 | x | not yet |  |"
    counts = report(page).splitlines()
    assert {"   2 not yet", "   1 tested"} <= set(counts)
    assert "     A1.1: x" in counts


def changed(row: str, line: str) -> str:
    """The page with another line in the place of a row's."""
    lines = [line if each.startswith(f"| {row} |") else each for each in TEXT.splitlines()]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("", "A1.1: the row is missing"),
        ("| A1.1 | x | not yet |  |\n| A1.1 | x | not yet |  |", "A1.1: it stands there 2 times"),
        ("| A1.1 | x | not yet |  |\n| A9.9 | x | not yet |  |", "A9.9: there is no such row"),
        ("| A1.1 | x | done |  |", "A1.1: 'done' is none of tested, does not apply, later, not yet"),
        ("| A1.1 | x | later |  |", "A1.1: nothing says that it may come later"),
        ("| A1.1 | x | does not apply |  |", "A1.1: why does it not apply?"),
        ("| A1.1 | x | tested |  |", "A1.1: which test shows it?"),
        ("| A1.1 | x | not yet | `a.py::test_a` |", "A1.1: it names a test: is it tested?"),
        ("| A1.1 | x | tested | `a.py::test_b` |", "A1.1: a.py has no test_b"),
        ("| A1.1 | x | tested | `b.py::test_b` |", "A1.1: b.py does not exist"),
        ("| A1.1 | x | tested | `a.py::test_a[A1.2]` |", "A1.1: a.py has no case 'A1.2'"),
        ("| A1.1 | x | tested | `a.py::test_nothing` |", "A1.1: test_nothing asserts nothing"),
        ("| A1.1 | x | tested | `a.py::test_true` |", "A1.1: test_true asserts nothing"),
    ],
)
def test_what_is_wrong_is_found(line: str, fault: str, tmp_path: Path) -> None:
    source = "def test_a():\n    assert 1 + 1 == 2\ndef test_nothing():\n    test_x = 1\ndef test_true():\n    assert True\n"
    (tmp_path / "a.py").write_text(source)
    found = [each for each in faults(changed("A1.1", line), tmp_path) if each.startswith(("A1.1:", "A9.9:"))]
    assert found == [fault]


def test_a_test_may_assert_through_a_function_of_its_file(tmp_path: Path) -> None:
    source = "def look(x):\n    assert x\ndef test_a():\n    look(2)\n"
    (tmp_path / "a.py").write_text(source)
    found = faults(changed("A1.1", "| A1.1 | x | tested | `a.py::test_a` |"), tmp_path)
    assert not [each for each in found if each.startswith("A1.1:")]


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("| D4 | segmented", "| D40 | segmented", "D4: nothing says why there is no such row"),
        ("| D4 | segmented", "| D4, D40 | segmented", "D40: it is no number that is left out"),
        (
            "::test_d7_",
            "::test_d77_",
            "D7: tests/unit/protocol/passivation/test_strategies.py has no test_d77_",
        ),
    ],
)
def test_each_number_that_is_no_row_has_its_reason(old: str, new: str, fault: str) -> None:
    found = faults(TEXT.replace(old, new))
    assert [each for each in found if each.startswith(fault)]
    assert gaps()[:3] == ["A1.7", "A1.8", "A1.11"]
    assert not set(gaps()) & set(ROWS)
