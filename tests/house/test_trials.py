"""The trials of the conformance rows can be made, and their page says what came of them."""

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.house.conformance import PAGE, NamedTest
from tests.house.trials import DATA, TOLD, Trial, fate, faults, outcome_of, read, told, write

ROW = "| A1.1 | x | tested | `tests/a.py::test_a`, `tests/a.py::TestB::test_b[one]` |"
A, B = NamedTest("tests/a.py", "test_a", ""), NamedTest("tests/a.py", "TestB::test_b", "one")
DATA_OF_ROW = """
[[trial]]
rows = ["A1.1"]
out = "the one"
file = "a.py"
old = "x = 1"
new = "x = 2"
"""


def all_trials() -> list[Trial]:
    return read(DATA.read_text(encoding="utf-8"), PAGE.read_text(encoding="utf-8"))


def test_each_test_of_each_row_has_a_trial_and_what_it_takes_out_stands_there_once() -> None:
    assert faults(all_trials(), PAGE.read_text(encoding="utf-8")) == []


def test_the_page_says_of_each_trial_that_its_tests_have_noticed() -> None:
    text = TOLD.read_text(encoding="utf-8")
    assert text == write(all_trials(), told(text)), "python -m tests.house.trials ROW --write"
    assert "not tried yet" not in text
    assert "| **" not in text
    assert ", **" not in text


def test_a_trial_is_for_all_tests_of_its_row_or_for_some() -> None:
    (trial,) = read(DATA_OF_ROW, ROW)
    assert trial.tests == (A, B)
    (trial,) = read(DATA_OF_ROW + 'tests = ["test_b[one]"]', ROW)
    assert trial.tests == (B,)
    with pytest.raises(ValueError, match=r"A1\.1 names no test 'test_c'"):
        read(DATA_OF_ROW + 'tests = ["test_c"]', ROW)


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        ("x = 1\n", ""),
        ("x = 3\n", "a.py has the text to replace 0 times"),
        ("x = 1\nx = 1\n", "a.py has the text to replace 2 times"),
        ("x = 1 if\n", "invalid syntax"),
    ],
)
def test_a_trial_that_cannot_be_made_is_told(source: str, wrong: str, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(source)
    found = faults(read(DATA_OF_ROW, ROW), ROW, tmp_path)
    assert all(wrong in each for each in found)
    assert bool(found) == bool(wrong)


def test_each_test_of_a_row_is_tried(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    found = faults(read(DATA_OF_ROW + 'tests = ["test_a"]', ROW), ROW, tmp_path)
    assert found == ["A1.1: nothing is taken out to try tests/a.py::TestB::test_b[one]"]


def report(*cases: str) -> "ET.ElementTree[ET.Element]":
    text = f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>"
    return ET.ElementTree(ET.fromstring(text))  # noqa: S314  (our own)


def case(name: str, inside: str = "") -> str:
    place, _, function = name.rpartition(".")
    return f'<testcase classname="tests.a{place}" name="{function}">{inside}</testcase>'


def failed(message: str) -> str:
    return f'<failure message="{message}">text</failure>'


@pytest.mark.parametrize(
    ("inside", "expected"),
    [
        ("", "passed"),
        (failed("assert 1 == 2"), "failed"),
        (failed("TimeoutError"), "failed"),
        (failed("TypeError: f() takes no arguments"), "cannot run"),
        ('<error message="failed on setup"/>', "cannot run"),
    ],
)
def test_only_a_test_that_ran_and_failed_has_noticed(inside: str, expected: str) -> None:
    assert outcome_of(A, report(case("test_a", inside)))[0] == expected


def test_one_case_that_fails_is_enough_and_the_named_one_counts() -> None:
    both = report(case("test_a[x]"), case("test_a[y]", failed("assert 0")))
    assert outcome_of(A, both) == ("failed", "assert 0")
    broken = report(case("test_a[x]", failed("NameError: x")), case("test_a[y]", failed("assert 0")))
    assert outcome_of(A, broken) == ("failed", "assert 0")
    other = report(case(".TestB.test_b[two]", failed("assert 0")), case(".TestB.test_b[one]"))
    assert outcome_of(B, other)[0] == "passed"
    assert outcome_of(A, other)[0] == "missing"


def test_the_page_keeps_what_came_of_a_trial() -> None:
    trials = read(DATA_OF_ROW, ROW)
    assert "not tried yet" in write(trials, {})
    came = fate({A: ("failed", "assert 0"), B: ("passed", "")})
    assert came == "`test_a`, **passed**: `TestB::test_b[one]`"
    assert told(write(trials, {("A1.1", "the one"): came})) == {("A1.1", "the one"): came}
    assert isinstance(trials[0], Trial)
