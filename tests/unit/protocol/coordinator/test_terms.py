"""Terms of elections, and the eras that they belong to."""

from sharding_app.protocol.coordinator.terms import (
    begins_era,
    decided_in_era,
    era_began,
    era_of,
    lowest_epoch,
    next_term,
)
from sharding_app.protocol.records import ShardRow

LATER = 1_800_000_000


def row(epoch: int) -> ShardRow:
    return ShardRow("shop.Cart", 1, epoch, "a", "home")


def test_in_one_lineage_terms_count_on_whatever_the_time_is() -> None:
    assert next_term(0, same_lineage=True, now_seconds=LATER) == 1
    assert next_term(41, same_lineage=True, now_seconds=LATER) == 42
    assert [era_of(term) for term in (1, 42)] == [0, 0]
    assert not begins_era(1)
    assert era_began(42) is None
    assert lowest_epoch(42) == 1


def test_the_first_election_in_another_lineage_begins_an_era_above_all_earlier_terms() -> None:
    first = next_term(41, same_lineage=False, now_seconds=LATER)
    assert first > 41
    assert begins_era(first)
    assert era_began(first) == LATER
    assert lowest_epoch(first) < first
    second = next_term(first, same_lineage=True, now_seconds=LATER + 60)
    assert second == first + 1
    assert era_of(second) == era_of(first)
    assert not begins_era(second)


def test_two_failovers_in_one_second_begin_two_eras() -> None:
    """The former server's first election is in a tail that the next one has lost."""
    lost, kept = (
        next_term(41, same_lineage=False, now_seconds=LATER, timeline=timeline) for timeline in (15, 16)
    )
    assert era_of(lost) != era_of(kept)
    assert era_began(lost) == era_began(kept) == LATER
    first = [next_term(41, same_lineage=False, now_seconds=LATER, timeline=each) for each in (2, 3)]
    assert era_of(first[0]) < era_of(first[1])
    assert lowest_epoch(first[0]) + 10_000 < lowest_epoch(first[1])


def test_a_clock_that_was_set_back_gives_no_term_again() -> None:
    first = next_term(41, same_lineage=False, now_seconds=LATER, timeline=2)
    later = next_term(first, same_lineage=True, now_seconds=LATER)
    second = next_term(later, same_lineage=False, now_seconds=LATER - 60, timeline=3)
    assert begins_era(second)
    assert era_of(second) > era_of(later)
    assert lowest_epoch(second) > later, "no epoch of the former era comes again"


def test_an_era_has_decided_once_a_row_has_an_epoch_of_it() -> None:
    first = next_term(41, same_lineage=False, now_seconds=LATER)
    assert decided_in_era(41, []), "no lineage was left"
    assert not decided_in_era(first, [row(1), row(lowest_epoch(first) - 1)])
    assert decided_in_era(first, [row(1), row(lowest_epoch(first))])
