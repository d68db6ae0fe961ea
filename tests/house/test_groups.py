"""Tests that may disturb each other run in one worker; the long ones are spread over all, and come
first.
"""

from itertools import pairwise

from tests.groups import APART, BY_FILE, FIRST, TOGETHER, group, place
from tests.support.live import ROOT


def test_what_is_named_is_there() -> None:
    assert [
        each for each in (*FIRST, *TOGETHER, *BY_FILE, *APART) if not (ROOT / "tests" / each).exists()
    ] == []


def test_those_that_share_servers_are_together() -> None:
    for name in ("acceptance/test_kill.py::a", "acceptance/test_mixed.py::b[c]"):
        assert group(f"tests/{name}") == "acceptance"
    assert group("tests/acceptance/test_standby.py::a") == group("tests/acceptance/test_torture.py::b")
    assert group("tests/acceptance/test_standby.py::a") != group("tests/acceptance/test_kill.py::a")
    node = "tests/acceptance/commands/test_node.py"
    assert group(f"{node}::a") == group(f"{node}::b")
    assert group(f"{node}::a") not in {"acceptance", group("tests/acceptance/commands/test_roles.py::a")}


def test_those_that_share_nothing_are_spread() -> None:
    seeds = [f"tests/simulation/test_seeds.py::test_a_planted_mistake_is_found[{each}]" for each in "ab"]
    assert len({group(each) for each in seeds}) == 2


def test_the_longest_come_first() -> None:
    places = [place(f"tests/{folder}/test_any.py::test") for folder in (*FIRST, "house")]
    assert all(before < after for before, after in pairwise(places))
    assert place("tests/unit/test_any.py::test") == place("tests/house/test_any.py::test")
