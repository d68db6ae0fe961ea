"""What counts as a mutant, which tests are tried with it, and when it has been noticed."""

import sys
from pathlib import Path

import pytest

from tests.house import mutants as mutants_
from tests.house.conformance import ROOT
from tests.house.mutants import (
    CORE,
    FOLDERS,
    FURTHER,
    Step,
    chosen,
    further,
    mutants,
    nearest,
    notices,
    steps,
)

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
    first = chosen(ROOT, 1, 20, only="/region")
    assert {each.file for each in first} == {"sharding_app/protocol/region.py"}
    assert chosen(ROOT, 1, 20, only="/region") == first
    assert chosen(ROOT, 1, 10, only="/region") + chosen(ROOT, 1, 10, skip=10, only="/region") == first
    assert chosen(ROOT, 2, 20, only="/region") != first
    assert len({each.file for each in chosen(ROOT, 1, 20)}) > 5, "of the whole core"
    for each in first:
        text = (ROOT / each.file).read_text(encoding="utf-8")
        compile(each.applied(text), each.file, "exec")
        assert each.applied(text) != text


def test_the_nearest_tests_import_the_file_or_what_it_is_a_part_of() -> None:
    assert "tests/unit/protocol/test_region_limits.py" in nearest(ROOT, "sharding_app/protocol/region.py")
    assert "tests/unit/protocol/coordinator/test_coordinator.py" in nearest(
        ROOT, "sharding_app/protocol/coordinator/handoff.py"
    ), "through a helper"
    assert "tests/unit/runtime/execution/test_supervision.py" in further(
        ROOT, "sharding_app/protocol/supervision.py"
    )
    assert "tests/unit/settings/test_allocation_settings.py" in further(
        ROOT, "sharding_app/protocol/allocation/least_shards.py"
    )
    assert "tests/unit/dashboard/test_trouble.py" in further(ROOT, "sharding_app/protocol/messages.py")
    assert not [each for each in further(ROOT, "sharding_app/protocol/ids.py") if "/protocol/" in each]
    for path in (ROOT / "sharding_app/protocol").rglob("*.py"):
        file = path.relative_to(ROOT).as_posix()
        names = [step.name for step in steps(ROOT, file, 20)]
        assert "core" in names
        assert names[-2:] == ["simulation", "simulation"]
    assert [step.name for step in steps(ROOT, None, 0)] == ["core"]


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its tests would be tried with no mutant, and no line would say so."""
    file = "sharding_app/protocol/region.py"
    for folder in (CORE, *FOLDERS, *FURTHER):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    assert (nearest(tmp_path, file), further(tmp_path, file)) == ([], [])
    monkeypatch.setattr(mutants_, "FURTHER", ("tests/unit", "tests/moved"))
    with pytest.raises(NotADirectoryError, match="tests/moved: there is no such folder"):
        further(tmp_path, file)
    (tmp_path / FOLDERS[0]).rmdir()
    with pytest.raises(NotADirectoryError, match=FOLDERS[0]):
        nearest(tmp_path, file)


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
