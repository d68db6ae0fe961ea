"""How many commits of a batch may share one append."""

from datetime import UTC, datetime

from sharding_app.ports.deliveries import MessageChanges, MessageRow, Taking, TimerKey, joined

KEY = (1, "a", "k")


def together(*parts: MessageChanges | None) -> tuple[list[MessageRow], list[TimerKey], list[Taking], int]:
    changes, count = joined(parts)
    assert changes is not None
    return [*changes.sends], [*changes.cancels], [*changes.takes], count


def row(name: str, key: str | None = None) -> MessageRow:
    return MessageRow(name, 1, 0, "a", 1, 1, 0, "shop.Cart", "a", "close", b"", key=key)


def test_commits_without_messages_have_none() -> None:
    assert joined([None, None]) == (None, 2)
    assert joined([None, MessageChanges()]) == (None, 2)
    assert joined([]) == (None, 0)


def test_messages_and_takings_of_all_commits_go_together() -> None:
    first, second = (
        MessageChanges([row("1")], takes=[Taking("x")]),
        MessageChanges([row("2")], takes=[Taking("y")]),
    )
    assert together(first, None, second) == ([row("1"), row("2")], [], [Taking("x"), Taking("y")], 3)


def test_the_last_word_about_a_key_counts() -> None:
    plan, anew, cancel = (
        MessageChanges([row("1", "k")]),
        MessageChanges([row("2", "k")]),
        MessageChanges(cancels=[KEY]),
    )
    assert together(plan, anew) == ([row("2", "k")], [], [], 2)
    assert together(plan, cancel) == ([], [KEY], [], 2)
    assert together(plan, cancel, anew) == ([row("2", "k")], [], [], 3)


def test_a_row_that_an_earlier_commit_takes_is_for_the_next_append() -> None:
    take = MessageChanges(takes=[Taking("x")])
    assert together(None, take, take, None) == ([], [], [Taking("x")], 2)


def test_a_timer_that_an_earlier_commit_cancels_or_replaces_is_for_the_next_append() -> None:
    fires, cancels, replaces = (
        MessageChanges(takes=[Taking("1", KEY)]),
        MessageChanges(cancels=[KEY]),
        MessageChanges([row("2", "k")]),
    )
    assert together(cancels, fires) == ([], [KEY], [], 1)
    assert together(replaces, fires) == ([row("2", "k")], [], [], 1)
    assert together(fires, cancels) == ([], [KEY], [Taking("1", KEY)], 2)


def test_the_row_of_a_repeating_timer_is_taken_once_in_an_append() -> None:
    again = MessageChanges(takes=[Taking("1", KEY, again=("2", datetime(2026, 1, 1, tzinfo=UTC)))])
    assert joined([again, MessageChanges(takes=[Taking("1", KEY)])])[1] == 1
