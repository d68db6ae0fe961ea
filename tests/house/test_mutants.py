"""What counts as a mutant, which tests are tried with it, and when it has been noticed."""

import sys
from pathlib import Path

import pytest

from tests.house.conformance import ROOT
from tests.house.mutants import FOLDERS, NOT_THESE, Step, chosen, further, mutants, nearest, notices, steps

SOURCE = '''
"""Ten words: 3 < 4."""

LIMIT = 20


class Queue:
    """A queue – of some."""

    def put(self, item: int, most: int = 7) -> bool:
        """Take it, if 5 < 6."""
        if item in self.items and not self.full:
            raise ValueError(f"twice, and {self.size + 5} more")
        self.size += 1
        self.last = item
        self.items.append(min(item, 12))
        return self.size < most

    def __repr__(self) -> str:
        return "queue" if self.size < 3 else "long"
'''


def changed(text: str) -> set[str]:
    """Of each mutant, the line that it changes."""
    lines = text.splitlines()
    found = set()
    for mutant in mutants("a.py", text):
        (line,) = [
            new.strip()
            for old, new in zip(lines, mutant.applied(text).splitlines(), strict=True)
            if old != new
        ]
        found.add(line)
    return found


def test_each_is_one_small_change_inside_of_a_function() -> None:
    assert changed(SOURCE) == {
        "if ((item in self.items) or (not self.full)):",
        "if ((item in self.items)):",
        "if ((not self.full)):",
        "if (item not in self.items) and not self.full:",
        "if item in self.items and bool(self.full):",
        "if True:",
        "if False:",
        "pass",
        "self.size -= 1",
        "self.items.append(max(item, 12))",
        "self.items.append(min(item, 13))",
        "return (self.size <= most)",
        "return None",
    }


def test_a_mutant_says_what_it_changes() -> None:
    text = "def f(x: int) -> int:\n    y = 'é'; return x + 5\n"
    told = [mutant.told(text) for mutant in mutants("a.py", text)]
    assert {"place": "a.py:2", "old": "5", "new": "6"} in told, "after a letter of two bytes"


def test_the_same_seed_chooses_the_same_and_a_run_can_go_on() -> None:
    first = chosen(ROOT, 1, 20)
    assert chosen(ROOT, 1, 20) == first
    assert chosen(ROOT, 1, 10) + chosen(ROOT, 1, 10, skip=10) == first
    assert chosen(ROOT, 2, 20) != first
    assert {each.file for each in chosen(ROOT, 1, 5, only="/region")} == {"sharding_app/core/region.py"}
    for each in first:
        text = (ROOT / each.file).read_text(encoding="utf-8")
        compile(each.applied(text), each.file, "exec")
        assert each.applied(text) != text


def test_the_nearest_tests_import_the_file_or_what_it_is_a_part_of() -> None:
    assert "tests/core/test_region_limits.py" in nearest(ROOT, "sharding_app/core/region.py")
    assert "tests/core/test_coordinator.py" in nearest(ROOT, "sharding_app/core/handoff.py"), (
        "through a helper"
    )
    assert "tests/protocol/test_supervision.py" in further(ROOT, "sharding_app/core/supervision.py")
    for path in (ROOT / "sharding_app/core").glob("*.py"):
        file = path.relative_to(ROOT).as_posix()
        assert not set(nearest(ROOT, file)) & set(NOT_THESE)
        names = [step.name for step in steps(ROOT, file, 20)]
        assert "core" in names
        assert names[-2:] == ["simulation", "simulation"]
    assert [step.name for step in steps(ROOT, None, 0)] == ["core"]
    assert all((ROOT / each).exists() for each in (*FOLDERS, *NOT_THESE))


@pytest.mark.parametrize(
    ("program", "noticed"),
    [
        ("", False),
        ("raise SystemExit(1)", True),
        ("raise SystemExit(2)", True),
        ("raise SystemExit(5)", False),
        ("import os; os.kill(os.getpid(), 9)", True),
        ("b'x' * 8_000_000_000", True),
    ],
)
def test_a_step_that_fails_has_noticed_and_one_without_tests_has_not(
    program: str, noticed: bool, tmp_path: Path
) -> None:
    assert notices(tmp_path, Step("one", (sys.executable, "-c", program))) is noticed
