"""What counts as a mutant, and when a test or a seed has noticed it."""

import os
import shutil
from pathlib import Path
from typing import Any, TextIO

import pytest

from tests.house import forks
from tests.house.conformance import ROOT
from tests.house.forks import MEMORY_BYTES, Functions, in_fork, limited
from tests.house.mutants import CORE_TESTS, Mutant, chosen, fates, mutants

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
    first = chosen(ROOT, 1, 20, only="/ids")
    assert {each.file for each in first} == {"sharding_app/protocol/ids.py"}
    assert chosen(ROOT, 1, 5, only="/ids") + chosen(ROOT, 1, 15, skip=5, only="/ids") == first
    assert chosen(ROOT, 2, 20, only="/ids") != first
    assert len({each.file for each in chosen(ROOT, 1, 20)}) > 5, "of the whole core"
    for each in first:
        text = (ROOT / each.file).read_text(encoding="utf-8")
        compile(each.applied(text), each.file, "exec")
        assert each.applied(text) != text


# -- Which tests notice ----------------------------------------------------------------------------

GATE = """
def limit() -> int:
    return 10


def small() -> bool:
    return limit() < 20


SMALL = small()


class Room:
    def __init__(self) -> None:
        self.name = "room"


class Gate(Room):
    def __init__(self) -> None:
        super().__init__()
        self.inside = 0

    def enter(self, people: int) -> bool:
        self.inside += people
        return self.inside < limit()

    def leave(self, people: int) -> None:
        self.inside -= people

    def unused(self) -> bool:
        return True
"""
NEAR = """
from sharding_app.protocol.gate import SMALL, Gate


def test_it_lets_a_few_in():
    assert Gate().enter(3)


def test_it_has_a_limit():
    assert not Gate().enter(10)


def test_the_limit_is_small():
    assert SMALL
"""
FAR = """
from sharding_app.protocol.gate import Gate

gates = []


def test_it_has_a_name():
    assert Gate().name == "room"


def test_people_leave():
    gates.append(Gate())
    gates[-1].leave(-3)
    gates[-1].leave(1)
    assert len(gates) == 1, "only without the test below, and before it"
    assert gates[-1].inside == 2


def test_the_state_of_another_test_shows_nothing():
    gates.append(Gate())
    gates[-1].leave(0)
"""


def gate(place: str, new: str) -> Mutant:
    """Replace a text that stands once in the gate."""
    assert GATE.count(place) == 1
    start = GATE.index(place)
    line = GATE[:start].count("\n") + 1
    return Mutant("sharding_app/protocol/gate.py", line, line, start, start + len(place), new)


def test_a_change_is_tried_in_a_fork_with_the_tests_that_execute_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DJANGO_SETTINGS_MODULE")
    for name in ("mutants", "forks", "trials", "conformance"):
        target = tmp_path / "tests" / "house" / f"{name}.py"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / "tests" / "house" / target.name, target)
    for file, text in (
        ("sharding_app/protocol/gate.py", GATE),
        (f"{CORE_TESTS}test_near.py", NEAR),
        ("tests/unit/test_far.py", FAR),
    ):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text, encoding="utf-8")
    tried: dict[Mutant, tuple[str, str, str]] = {
        gate("self.inside < limit()", "True"): ("nearest", "test_it_has_a_limit", ""),
        gate("self.inside < limit()", "self.inside <= limit()"): ("nearest", "test_it_has_a_limit", ""),
        gate("self.inside -= people", "self.inside += people"): ("further", "test_people_leave", ""),
        gate("return True", "return False"): ("", "", "0 tests, 0 tests, 0 seeds"),
        gate("return 10", "return 20"): ("nearest", "test_it_has_a_limit", ""),
        gate("limit() < 20", "False"): ("nearest", "", "in new processes"),
    }
    told = list(fates(tmp_path, list(tried), seeds=0))
    assert [each for each in told if "failed" in each] == []
    found = {
        each["number"]: (each["step"], each["by"].rpartition("::")[2], each["how"])
        for each in told
        if "step" in each
    }
    assert [found[number] for number in range(len(tried))] == list(tried.values())
    assert (tmp_path / "sharding_app/protocol/gate.py").read_text(encoding="utf-8") == GATE


def test_a_function_is_changed_where_it_lives_unless_its_cells_become_others(tmp_path: Path) -> None:
    names: dict[str, Any] = {"__name__": "gate"}
    exec(compile(GATE, str(tmp_path / "sharding_app/protocol/gate.py"), "exec"), names)  # noqa: S102  (our own text)
    functions, made_before = Functions(tmp_path), names["Gate"]()
    assert functions.changed(gate("super().__init__()", "pass"), GATE) is None
    assert functions.changed(gate("return True", "return True"), GATE) is None
    change = functions.changed(gate("return True", "return False"), GATE)
    assert change is not None
    assert made_before.unused()
    change()
    assert not made_before.unused()


def test_a_fork_that_fails_dies_or_goes_on_for_ever_has_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "MORE_SECONDS", 0.05)

    def endless(out: TextIO) -> bool:
        print("begun", file=out, flush=True)
        with limited(0.0):
            while True:
                pass

    def greedy(out: TextIO) -> bool:
        return len(b"x" * 2 * MEMORY_BYTES) > 0

    def killed(out: TextIO) -> bool:
        os.kill(os.getpid(), 9)
        return True

    assert in_fork(lambda out: out.write("well") > 0) == (True, "well")
    assert in_fork(lambda out: False) == (False, "")
    assert in_fork(killed) == (False, "")
    assert in_fork(endless) == (False, "begun\n")
    well, told = in_fork(greedy)
    assert (well, told.splitlines()[-1]) == (False, "MemoryError")
