"""The answer of a second judge, as it stands in a report: here a script takes the place of the
program that Go builds.
"""

import sys
from pathlib import Path

import pytest

from sharding_app.torture.history import Call
from sharding_app.torture.porcupine import Disagreement, check, opinion


def program(place: Path, answer: str, code: int = 0) -> Path:
    made = place / "judge"
    made.write_text(f"#!{sys.executable}\nprint('''{answer}''')\nraise SystemExit({code})\n")
    made.chmod(0o755)
    return made


CALLS: list[Call] = []


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ('{"linearizable":2,"illegal":["a"],"undecided":[]}', "no order either for the calls of a"),
        ('{"linearizable":2,"illegal":[],"undecided":["b"]}', "calls of 2 entities, and 1 undecided"),
        ("nonsense", "cannot judge it"),
    ],
)
def test_a_report_has_its_answer(tmp_path: Path, answer: str, text: str) -> None:
    assert text in opinion(program(tmp_path, answer), CALLS, tmp_path)


def test_one_that_fails_costs_no_report(tmp_path: Path) -> None:
    assert "ended with 3" in opinion(program(tmp_path, "", 3), CALLS, tmp_path)


def test_it_has_to_agree_with_our_judge(tmp_path: Path) -> None:
    illegal = program(tmp_path, '{"linearizable":0,"illegal":["a"],"undecided":[]}')
    with pytest.raises(Disagreement, match="no order for the calls of a"):
        check(illegal, CALLS, tmp_path)
