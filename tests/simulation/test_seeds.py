"""A sample of seeds: no promise breaks, every fault, message and transition happens, and planted mistakes are found.

The full runs are `manage.py sharding_simulate --seeds 1000`, and `--seeds 100 --planted NAME` for each mistake.
"""

import os

import pytest

from sharding_app.simulation.faults import KINDS, Fault
from sharding_app.simulation.mistakes import MISTAKES
from sharding_app.simulation.planted import planted, takes_its_place
from sharding_app.simulation.runs import Job, Summary, run, run_all
from sharding_app.simulation.world import Outcome, run_seed
from tests.simulation.hash_seeds import outputs

SAMPLE = len(KINDS) + 9
"""The first fault of a seed follows from its number: so each kind is the first one at least once."""
SURE = (
    "answer_before_commit",
    "asks_never_time_out",
    "begins_again_without",
    "buffer_order_broken",
    "deaf_stays",
    "deduplication_off",
    "double_allocation",
    "ids_of_one_process",
    "lease_is_not_given_back",
    "lease_look_off",
    "lease_not_waited_for",
    "leaves_without_a_word",
    "mailbox_without_limit",
    "recovery_misses_last_event",
    "resend_off",
    "retries_are_not_looked_up",
    "row_stays_wrong",
    "second_look_off",
    "burial_needs_the_right",
    "buried_are_not_told",
    "cut_off_stays",
    "unknown_told_as_full",
    "unknown_told_as_not_begun",
    "lease_counts_unanswered_pings",
    "allocates_before_the_minimum",
    "rebalances_while_mixed",
    "remembered_not_recalled",
    "remembered_not_stored",
    "singleton_not_terminated",
    "singleton_on_the_youngest",
    "stopped_while_it_runs",
    "waits_for_room_with_what_it_has",
)
"""Mistakes that the very first seeds find."""
LATER = (("former_leases_are_not_waited_for", 35),)
"""Mistakes that some kind of fault has to come first for, and the first seed to look at."""

DIGEST = """
from sharding_app.simulation.world import run_seed
print(run_seed(3).digest)
"""


def small(outcome: Outcome) -> tuple[object, ...]:
    return outcome.digest, outcome.steps, outcome.commands, outcome.commits, outcome.seconds


@pytest.mark.slow
def test_a_sample_keeps_all_promises_and_leaves_nothing_out() -> None:
    summary = Summary()
    for result in run_all([Job(seed, 3 + seed % 3) for seed in range(SAMPLE)], os.cpu_count() or 1):
        assert result.broken is None, "\n".join([f"seed {result.seed}: {result.broken}", *result.trace])
        assert result.steps >= 500
        assert result.commands >= 200
        assert len([name for name in result.coverage.faults if result.coverage.faults[name]]) >= 5
        summary.add(result)
    assert summary.never_happened() == []


def test_one_seed_gives_one_history() -> None:
    first = run_seed(3)
    assert small(run_seed(3)) == small(first)
    assert small(run_seed(4)) != small(first)
    assert small(run_seed(4)) == small(run_seed(4)), "of the plain kind"


def test_a_history_does_not_depend_on_the_hash_seed() -> None:
    assert len(outputs(DIGEST)) == 1


@pytest.mark.slow
@pytest.mark.parametrize(("name", "first"), [*((name, 0) for name in SURE), *LATER])
def test_a_planted_mistake_is_found(name: str, first: int) -> None:
    for seed in range(first, first + 12):
        result = run(Job(seed, 3 + seed % 3, mistake=name))
        if result.broken is not None:
            assert result.promise in MISTAKES[name].promises, result.broken
            assert 0 < len(result.trace) <= 60
            again = run(Job(seed, 3 + seed % 3, mistake=name))
            assert (again.broken, again.trace) == (result.broken, result.trace)
            return
    pytest.fail(f"nothing noticed {name}")


def test_a_commit_in_doubt_is_not_judged_without_the_right_to_end_its_session() -> None:
    """Found among faults of that kind alone: it takes a commit that executes after the right was given back."""
    faults = [Fault(1.0 + 3.5 * number, "right_taken", 2.8, 0) for number in range(4)]
    assert run_seed(0, faults=faults).broken is None
    with planted("settle_needs_no_right"):
        broken = run_seed(0, faults=faults).broken
    assert broken is not None
    assert broken.promise in MISTAKES["settle_needs_no_right"].promises


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
