"""The protocol, message by message and row by row, is as its scripts say
(`tests/simulation/golden`).

`--rewrite-golden` writes the scripts and their page anew.
"""

from __future__ import annotations

import pytest

from tests.simulation.golden.page import PAGE, SCRIPTS, page_of, path_of
from tests.simulation.golden.plays import PLAYS
from tests.simulation.hash_seeds import outputs
from tests.simulation.planted import planted

ALL = """
from tests.simulation.golden.plays import PLAYS
print(*(script() for script in PLAYS.values()))
"""


@pytest.fixture(scope="module")
def rewrites(pytestconfig: pytest.Config) -> bool:
    return bool(pytestconfig.getoption("--rewrite-golden"))


@pytest.mark.parametrize("name", PLAYS)
def test_a_script_is_what_happens(name: str, rewrites: bool) -> None:
    script = PLAYS[name]()
    if rewrites:
        path_of(name).write_text(script)
    assert path_of(name).read_text() == script, "was the protocol meant to change? --rewrite-golden"


def test_no_script_is_left_over() -> None:
    assert sorted(SCRIPTS.iterdir()) == sorted(map(path_of, PLAYS))


def test_the_page_holds_all_scripts(rewrites: bool) -> None:
    page = page_of({name: path_of(name).read_text() for name in PLAYS})
    if rewrites:
        PAGE.write_text(page)
    assert PAGE.read_text() == page


def test_a_script_does_not_depend_on_the_hash_seed() -> None:
    assert len(outputs(ALL)) == 1


@pytest.mark.parametrize(
    ("mistake", "name"),
    [
        ("answer_before_commit", "known_home"),
        ("handed_back_goes_last", "hand_off"),
        ("gone_is_not_told", "failover"),
        ("epoch_check_off", "late_write"),
        ("term_check_off", "late_decision"),
        ("resume_on_greater_epoch", "lease_return"),
        ("buried_are_not_told", "lease_loss"),
        ("retries_are_not_looked_up", "retried_command"),
        ("remembered_not_recalled", "remembered_restart"),
    ],
)
def test_a_planted_mistake_changes_a_script(mistake: str, name: str) -> None:
    with planted(mistake):
        assert PLAYS[name]() != path_of(name).read_text()
