"""Each check of the simulation has been seen to fail: by a planted mistake that a seed finds under
its name (plants.toml), or by a test that gives the judge something wrong.

A check that cannot fail proves nothing, however many seeds it passes.
"""

import ast
import re

import pytest

from tests.docs.test_guarantees import reported
from tests.house.conformance import ROOT, NamedTest, fault_of_test
from tests.simulation.find_plants import check_of, known

BY_A_TEST = {
    "a_timer_rings_once": (
        "tests/simulation/test_particular.py",
        "test_a_timer_rings_once_in_time_and_in_its_object",
    ),
    "acknowledged_survives_promotion": (
        "tests/simulation/test_own_rows.py",
        "test_a_booking_that_was_answered_survives_a_synchronous_standby_that_takes_over",
    ),
    "discarded_is_not_delivered": (
        "tests/simulation/test_message_checker.py",
        "test_a_message_that_an_operator_has_discarded_takes_no_effect",
    ),
    "epochs_rise": (
        "tests/simulation/test_witness.py",
        "test_a_shard_has_a_greater_epoch_at_each_next_home",
    ),
    "every_call_ends": ("tests/simulation/test_errors_told.py", "test_a_call_has_to_end_in_its_time"),
    "hosts_what_the_row_says": (
        "tests/simulation/test_journals.py",
        "test_a_take_by_a_node_that_was_never_the_home_is_found",
    ),
    "messages_fail_for_a_reason": (
        "tests/simulation/test_message_checker.py",
        "test_a_message_is_returned_for_a_reason_only",
    ),
    "money_is_kept": ("tests/simulation/test_message_checker.py", "test_no_cent_is_made_or_lost"),
    "nothing_is_erased_late": (
        "tests/simulation/test_witness.py",
        "test_an_erasure_whose_home_is_gone_takes_nothing_that_came_later",
    ),
    "order_is_kept": (
        "tests/simulation/test_order.py",
        "test_a_call_that_is_answered_is_not_sent_again_whatever_is_erased",
    ),
    "partly_is_stored": ("tests/simulation/test_errors_told.py", "test_partly_is_there"),
    "schedules_keep_their_times": (
        "tests/simulation/test_schedules.py",
        "test_a_firing_takes_the_times_that_have_come",
    ),
    "timers_fire": (
        "tests/simulation/test_message_checker.py",
        "test_a_timer_that_does_not_fire_is_missed_unless_its_row_was_refused",
    ),
    "written_by_who_has_taken_it": (
        "tests/simulation/test_journals.py",
        "test_an_event_of_another_home_is_found",
    ),
}
"""Names under which no planted mistake is found, and the test that makes each check fail."""


def test_each_check_is_known_to_fail() -> None:
    by_a_plant = {each.check for each in known().values()}
    assert reported().keys() - by_a_plant - BY_A_TEST.keys() == set()
    assert BY_A_TEST.keys() <= reported().keys()
    assert BY_A_TEST.keys() & by_a_plant == set(), "a planted mistake is found so: take it out of BY_A_TEST"


def test_plants_are_found_under_names_that_there_are() -> None:
    numbers = reported()
    for name, each in known().items():
        assert each.check == "liveness" or numbers[each.check] == each.promise, name


@pytest.mark.parametrize("name", sorted(BY_A_TEST))
def test_a_check_that_no_plant_shows_is_named_by_a_test(name: str) -> None:
    file, test = BY_A_TEST[name]
    assert fault_of_test(ROOT, NamedTest(file, test, "")) == ""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    (function,) = [each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name == test]
    texts = [each.value for each in ast.walk(function) if isinstance(each, ast.Constant)]
    assert any(isinstance(each, str) and re.search(rf"\b{name}\b", each) for each in texts)


def test_the_name_of_a_check_is_taken_from_the_sentence() -> None:
    assert check_of("promise 5, effect_once: 'a' is stored twice") == "effect_once"
    with pytest.raises(ValueError, match="no broken promise"):
        check_of("it has not ended")
