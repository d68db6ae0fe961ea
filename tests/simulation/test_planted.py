"""Every planted mistake is found, under a promise that it breaks.

Each is run with the seed that found it last (plants.toml), and ends there, mostly within a second.
Whatever moves the seeds makes some of these stale, and a new mistake has none: then the first seeds
are tried too, so that no change of the workload fails a mistake that is found as easily as before.
One that is not found by these either has to be looked at: `python -m tests.simulation.find_plants
NAME` says what a hundred do. Without an argument it writes the table anew.

A short run draws some of them; with ACCEPTANCE_SECONDS all are run.
"""

import os
import random
import re
import subprocess
import sys

import pytest

from sharding_app.testing.simulation.faults import Fault
from sharding_app.testing.simulation.runs import Job, run
from sharding_app.testing.simulation.world import run_seed
from tests.acceptance.scenario import SECONDS
from tests.house.conformance import ROOT, NamedTest, fault_of_test
from tests.simulation.find_plants import DATA, known, search, written
from tests.simulation.mistakes import MISTAKES
from tests.simulation.planted import planted, takes_its_place

MORE = 30
"""Seeds that are tried where the known one finds nothing any more, or none is known."""
LEASES = "tests/simulation/test_leases.py"
BYTES = "tests/simulation/test_bytes.py"
BY_ITSELF = {
    "fence_is_not_held": (
        "tests/simulation/test_planted.py",
        "test_an_append_that_is_frozen_at_its_commit_keeps_its_shard_where_it_is",
    ),
    "settle_needs_no_right": (
        "tests/simulation/test_planted.py",
        "test_a_commit_in_doubt_is_not_judged_without_the_right_to_end_its_session",
    ),
    "link_without_limit_of_bytes": (BYTES, "test_a_link_of_too_many_bytes_is_found"),
    "region_without_limit_of_bytes": (BYTES, "test_a_region_of_too_many_bytes_is_found"),
    "lease_is_left_to_timers": (LEASES, "test_a_holder_that_was_frozen_and_does_not_look_is_found"),
    "lease_loss_is_not_told": (LEASES, "test_a_taken_lease_finds_a_holder_that_does_not_stop"),
    "lease_never_over": (LEASES, "test_a_holder_that_goes_on_for_longer_is_found"),
    "lost_lease_is_kept": (LEASES, "test_a_holder_that_goes_on_though_it_is_told_is_found"),
}
"""Mistakes that seeds find by chance only, and the test that finds each among faults of its own."""
OF_A_TEST = {
    "dead_homes_are_heard": (
        "tests/unit/runtime/asking/test_late_replies.py",
        "test_a_reply_of_a_home_that_was_taken_for_dead_resolves_nothing",
    ),
    "outdated_callers_are_not_told": (
        "tests/unit/protocol/coordinator/test_resizing.py",
        "test_a_process_that_asks_by_other_numbers_is_told_the_present_ones",
    ),
    "late_refusals_are_obeyed": (
        "tests/unit/runtime/asking/test_late_replies.py",
        "test_a_shard_that_a_resize_has_made_is_not_refused_by_a_word_from_before_it",
    ),
    "changes_have_too_large_numbers": (
        "tests/unit/runtime/following/test_limits.py",
        "test_a_change_of_an_in_memory_entity_has_a_number_that_a_message_carries",
    ),
    "waiting_ones_are_not_stored_again": (
        "tests/unit/runtime/hosting/test_remembering.py",
        "test_those_that_wait_for_their_turn_are_stored_again_too",
    ),
    "erased_ones_are_stored_again": (
        "tests/unit/runtime/hosting/test_remember_store.py",
        "test_one_that_is_being_erased_is_not_stored_once_more",
    ),
    "erasures_wait_for_no_row": (
        "tests/unit/runtime/hosting/test_remember_store.py",
        "test_an_erasure_waits_for_a_row_that_is_stored_once_more",
    ),
    "shards_are_not_read_twice": (
        "tests/unit/runtime/hosting/test_remembering.py",
        "test_a_shard_that_is_to_be_read_again_is_read_after_the_read_under_way",
    ),
    "answers_to_former_coordinators_count": (
        "tests/unit/protocol/coordinator/test_coordinator.py",
        "test_an_answer_to_a_former_coordinator_does_not_show_that_a_shard_runs",
    ),
    "busy_locked_shards_are_taken": (
        "tests/unit/runtime/journal/test_overlapping.py",
        "test_a_locked_shards_rows_are_taken_once",
    ),
    "marks_do_not_move": (
        "tests/unit/adapters/memory/test_moving.py",
        "test_marks_come_along_with_the_shard_that_has_taken_the_messages",
    ),
    "marks_of_what_was_taken_out_go": (
        "tests/unit/adapters/memory/test_moving.py",
        "test_a_message_that_is_taken_out_counts_as_there_for_its_mark",
    ),
    "messages_come_that_have_taken_effect": (
        "tests/unit/adapters/memory/test_moving.py",
        "test_a_message_that_a_moved_target_had_marked_does_not_come_again",
    ),
    "messages_that_were_taken_out_stay_out": (
        "tests/unit/adapters/memory/test_moving.py",
        "test_a_home_puts_back_what_a_move_has_taken_out",
    ),
    "opened_shards_are_switched": (
        "tests/unit/adapters/memory/test_moving.py",
        "test_shards_that_were_opened_meanwhile_are_not_switched",
    ),
    "a_copy_passes_for_its_shard": (
        "tests/contract/test_lost_rows.py",
        "test_a_journal_that_a_shard_is_about_to_leave_counts_more_than_its_copy",
    ),
    "two_moves_at_a_time": (
        "tests/unit/adapters/memory/test_moving.py",
        "test_two_moves_of_a_type_are_not_at_work_together",
    ),
    "the_rest_is_copied_before_the_fence": (
        "tests/unit/adapters/memory/test_moving.py",
        "test_an_append_that_is_under_way_at_the_fence_comes_along",
    ),
    "copies_are_not_compared": (
        "tests/unit/adapters/memory/test_moving.py",
        "test_a_copy_that_differs_is_not_switched",
    ),
    "closings_hold_no_rows": (
        "tests/unit/adapters/memory/test_closing_races.py",
        "test_a_closing_waits_for_a_decision_under_way",
    ),
    "concurrent_query_trusts_any_commit": (
        "tests/unit/runtime/many/test_concurrent.py",
        "test_a_pipelined_entity_tells_committed_states_alone",
    ),
    "a_term_counts_in_another_lineage": (
        "tests/contract/test_lost_rows.py",
        "test_a_term_ends_with_the_lineage_of_its_election",
    ),
    "dead_at_once_after_restart": (
        "tests/unit/protocol/liveness/test_membership.py",
        "test_a_restart_gives_everyone_the_full_ttl",
    ),
    "a_new_era_waits_for_its_own_calls": (
        "tests/unit/protocol/test_region.py",
        "test_a_home_that_stays_in_a_new_era_gets_calls_at_once",
    ),
    "entities_call_without_ids": (
        "tests/unit/runtime/execution/test_calls.py",
        "test_an_entitys_call_under_the_same_id_takes_effect_once",
    ),
    "answers_beside_have_no_limit": (
        "tests/unit/runtime/many/test_concurrent.py",
        "test_answers_that_wait_for_a_commit_have_the_limit_of_the_mailbox",
    ),
    "deleted_rows_come_along": ("tests/contract/test_moving.py", "test_both_move_the_same"),
    "lost_rows_are_not_made_again": (
        "tests/contract/test_lost_rows.py",
        "test_lost_rows_are_made_again_in_their_journals",
    ),
    "rows_that_came_back_are_not_read": (
        "tests/unit/runtime/delivery/test_pages.py",
        "test_a_row_that_is_there_again_goes_before_those_that_are_sent_later",
    ),
    "erases_late": (
        "tests/unit/runtime/hosting/test_erase_at_home.py",
        "test_a_home_that_has_lost_its_shard_erases_nothing",
    ),
    "former_homes_remove_marks": (
        "tests/contract/test_marks.py",
        "test_only_the_present_home_of_a_shard_removes_its_marks",
    ),
    "marks_in_hand_are_removed": (
        "tests/unit/runtime/delivery/test_two_journals.py",
        "test_the_mark_of_a_message_in_hand_stays",
    ),
    "rows_elsewhere_are_not_looked_for": (
        "tests/unit/runtime/delivery/test_two_journals.py",
        "test_a_row_that_is_gone_runs_no_handler",
    ),
    "former_coordinators_resize": (
        "tests/contract/test_resizing.py",
        "test_a_former_coordinator_takes_no_step",
    ),
    "former_leases_are_not_waited_for": (
        "tests/unit/runtime/liveness/test_lineage.py",
        "test_a_session_that_comes_back_on_another_timeline_ends_the_lease_until_the_rows_are_read",
    ),
    "late_ones_looked_for_too_early": (
        "tests/unit/adapters/memory/test_late_requests.py",
        "test_no_late_request_executes_after_an_erasure",
    ),
    "lost_snapshots_are_stored": (
        "tests/unit/runtime/journal/test_snapshots.py",
        "test_one_that_waits_while_the_server_goes_back_is_dropped",
    ),
    "new_lineages_raise_no_revisions": (
        "tests/contract/test_eras_of_numbers.py",
        "test_numbers_of_a_new_era_have_higher_revisions_than_all_of_former_ones",
    ),
    "own_rows_are_believed_on_sight": (
        "tests/simulation/test_own_rows.py",
        "test_rows_in_doubt_are_not_told_as_stored_before_the_standby_has_them",
    ),
    "projection_waits_for_all_journals": (
        "tests/unit/runtime/projections/test_worker.py",
        "test_each_journal_has_turns_of_its_own",
    ),
    "replies_leave_no_mark": (
        "tests/contract/test_marks.py",
        "test_a_reply_without_events_leaves_a_mark_and_is_stored_once",
    ),
    "row_stays_wrong": (
        "tests/simulation/test_world.py",
        "test_a_row_that_says_something_else_of_its_node_is_written_again",
    ),
    "sends_what_is_being_stored": (
        "tests/unit/runtime/delivery/test_messages.py",
        "test_a_message_is_not_stored_again_behind_its_own_delivery",
    ),
    "settles_without_the_standby": (
        "tests/unit/runtime/journal/test_synchronous.py",
        "test_callers_are_told_that_the_fate_is_unknown_and_a_retry_gives_the_stored_reply",
    ),
    "queries_go_back_in_disorder": (
        "tests/unit/runtime/many/test_concurrent.py",
        "test_those_whose_commit_fails_are_answered_in_their_order",
    ),
    "the_cluster_tells_of_erasures_elsewhere": (
        "tests/unit/adapters/memory/test_projecting_journals.py",
        "test_an_erasure_is_told_where_the_entity_lies_alone",
    ),
    "unknown_told_as_not_begun": (
        "tests/unit/runtime/execution/test_fate.py",
        "test_its_entity_cannot_be_recovered_at_the_next_home",
    ),
    "failing_commits_are_not_waited_for": (
        "tests/unit/runtime/journal/test_commits.py",
        "test_the_last_commit_of_a_dropped_object_is_known_until_it_has_failed",
    ),
    "goes_again_behind_a_later_call": (
        "tests/unit/runtime/execution/test_overtaken.py",
        "test_one_behind_which_another_has_taken_effect_is_overtaken",
    ),
    "marks_are_told_before_the_standby_has_them": (
        "tests/unit/adapters/memory/test_standby.py",
        "test_a_mark_is_told_of_once_the_standby_has_it",
    ),
    "messages_stay_behind": (
        "tests/contract/test_resizing.py",
        "test_a_step_gives_rows_and_shards_of_its_groups_their_new_numbers",
    ),
    "no_journal_stands_still": (
        "tests/unit/runtime/hosting/test_standstill.py",
        "test_what_waits_for_a_journal_that_stands_still_counts_for_half_of_the_credit",
    ),
    "queries_go_back_without_a_limit": (
        "tests/unit/runtime/many/test_concurrent.py",
        "test_answers_that_wait_for_a_commit_have_the_limit_of_the_mailbox",
    ),
}
"""Mistakes that no seed of a hundred finds (of a resize: no seed of thirty with resizes; of a move:
of a dozen with moves), and the test that fails with each.
"""
KNOWN = sorted(MISTAKES.keys() - BY_ITSELF.keys() - OF_A_TEST.keys())
SHARE = 30
"""This number of them is run where time is short: a minute of one core."""


def drawn() -> list[str]:
    return sorted(random.Random(f"{os.environ['ACCEPTANCE_DRAW']} plants").sample(KNOWN, SHARE))


def test_the_table_of_seeds_is_of_the_mistakes_that_there_are() -> None:
    assert known().keys() <= MISTAKES.keys(), "python -m tests.simulation.find_plants"
    assert BY_ITSELF.keys() | OF_A_TEST.keys() <= MISTAKES.keys()
    assert not known().keys() & OF_A_TEST.keys(), "a seed is known now: take it out of OF_A_TEST"
    for file, name in BY_ITSELF.values():
        assert fault_of_test(ROOT, NamedTest(file, name, "")) == ""
    assert DATA.read_text(encoding="utf-8") == written(known())


@pytest.mark.slow
@pytest.mark.parametrize("name", KNOWN if SECONDS else drawn())
def test_a_planted_mistake_is_found(name: str) -> None:
    plant = known().get(name)
    last = [plant.seed] if plant is not None else []
    came = search(name, [*last, *(seed for seed in range(MORE) if seed not in last)])
    assert came.found is not None, (
        f"{name}: found neither by the seed of before {last} nor by the first {MORE} {came.others}; look for another one with "
        f"python -m tests.simulation.find_plants {name}"
    )


@pytest.mark.slow
def test_planted_mistakes_fail_their_tests() -> None:
    tests = {name: f"{file}::{test}" for name, (file, test) in OF_A_TEST.items()}
    ran = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-q", "-rf", "-p", "no:cacheprovider", "-p", "tests.simulation.with_mistake",
            *(f"--mistake={name}={test}" for name, test in tests.items()), *tests.values(),
        ],
        cwd=ROOT, capture_output=True, text=True, timeout=180 * len(tests),
    )  # fmt: skip
    assert ran.returncode == pytest.ExitCode.TESTS_FAILED, ran.stdout + ran.stderr
    found = {
        name
        for name, test in tests.items()
        if re.search(rf"^FAILED {re.escape(test)}(?=[ \[]|$)", ran.stdout, re.MULTILINE)
    }
    assert found == tests.keys(), ran.stdout + ran.stderr


def test_a_seed_that_breaks_another_promise_has_not_found_it(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "answer_before_commit"
    monkeypatch.setitem(MISTAKES, name, MISTAKES[name]._replace(promises=(13,)))
    seed = known()[name].seed
    came = search(name, [seed])
    assert came.found is None
    assert came.others[0].startswith(f"seed {seed} breaks promise")


def test_a_mistake_that_changes_nothing_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "answer_before_commit"
    monkeypatch.setitem(MISTAKES, name, MISTAKES[name]._replace(make=lambda real: real))
    assert search(name, [known()[name].seed]) == (name, None, ())


def test_a_mistake_is_found_again_by_its_seed() -> None:
    name = "answer_before_commit"
    seed = known()[name].seed
    with planted(name):
        first, again = (run(Job(seed, 3 + seed % 3)) for _ in range(2))
    assert first.broken is not None
    assert 0 < len(first.trace) <= 60
    assert (again.broken, again.trace) == (first.broken, first.trace)


def test_a_commit_in_doubt_is_not_judged_without_the_right_to_end_its_session() -> None:
    """Found among faults of that kind alone: it takes a commit that executes after the right was
    given back.
    """
    faults = [Fault(1.0 + 3.5 * number, "right_taken", 2.8, 0) for number in range(4)]
    assert run_seed(1, faults=faults).broken is None
    with planted("settle_needs_no_right"):
        broken = run_seed(1, faults=faults).broken
    assert broken is not None
    assert broken.promise in MISTAKES["settle_needs_no_right"].promises


def test_an_append_that_is_frozen_at_its_commit_keeps_its_shard_where_it_is() -> None:
    """Where no process ends another's sessions, the row that the append holds is all that stops a
    move.
    """
    faults = [Fault(1.0 + 3.0 * number, "pause_in_append", 7.0, number % 3) for number in range(4)]
    assert run_seed(16, faults=faults).broken is None
    with planted("fence_is_not_held"):
        broken = run_seed(16, faults=faults).broken
    assert broken is not None
    assert broken.promise in MISTAKES["fence_is_not_held"].promises


def test_a_planted_mistake_is_taken_out_again() -> None:
    for name, mistake in MISTAKES.items():
        before = mistake.where.__dict__[mistake.name]
        with planted(name):
            assert mistake.where.__dict__[mistake.name] is not before
        assert mistake.where.__dict__[mistake.name] is before


@pytest.mark.parametrize("name", sorted(MISTAKES))
def test_a_planted_mistake_can_be_called_as_what_it_replaces(name: str) -> None:
    mistake = MISTAKES[name]
    real = mistake.where.__dict__[mistake.name]
    takes_its_place(real, mistake.make(real), name)


def test_a_mistake_that_only_raises_is_refused() -> None:
    async def compare(self: object, generation: int, settled: object) -> None: ...

    async def lacks_one(self: object, generation: int) -> None: ...

    def is_not_awaited(self: object, generation: int, settled: object) -> None: ...

    takes_its_place(compare, compare, "itself")
    with pytest.raises(TypeError, match="cannot be called"):
        takes_its_place(compare, lacks_one, "resume_on_greater_epoch")
    with pytest.raises(TypeError, match="awaited"):
        takes_its_place(compare, is_not_awaited, "resume_on_greater_epoch")
