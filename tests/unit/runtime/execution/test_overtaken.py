"""A command that is sent again after its home's death does not run behind later ones of its asker
that have taken effect there.
"""

from typing import Any, cast

import pytest

from sharding_app.ports.journal import Journal, JournalUnavailable, Outcome
from sharding_app.protocol.messages import Deliver
from sharding_app.protocol.shard import Shard
from sharding_app.runtime.execution import earlier_attempts
from sharding_app.runtime.execution.earlier_attempts import EarlierAttempts
from sharding_app.runtime.journal.commits import Resident

pytestmark = pytest.mark.asyncio


class FakeJournal:
    def __init__(self, *stored: str) -> None:
        self.stored = set(stored)
        self.asked: list[str] = []
        self.failures = 0

    async def outcome(self, type_id: int, entity: str, command_id: str, age_ms: int) -> Outcome | None:
        assert (type_id, entity) == (1, "a")
        self.asked.append(command_id)
        if self.failures:
            self.failures -= 1
            raise JournalUnavailable("gone for a moment")
        return Outcome(1, "add", b"", False) if command_id in self.stored else None


def attempts(journal: FakeJournal) -> EarlierAttempts:
    return EarlierAttempts(cast(Any, None), 1, cast(Journal, journal), lambda: 10.0, 60.0)


def slot() -> Resident:
    return Resident("a", Shard("shop.Cart", 0, 2, Resident))


def again(request: int, *later: int | str) -> Deliver:
    return Deliver("shop.Cart", 0, 2, "a", request, "add", b"", f"?me:{request}", 2, 9_000, later=later)


@pytest.mark.parametrize("stored", ["?me:3", "theirs"])
async def test_one_behind_which_another_has_taken_effect_is_overtaken(stored: str) -> None:
    journal = FakeJournal(stored)
    assert await attempts(journal).is_overtaken(slot(), "me", again(1, 2, "theirs", 3))
    assert sorted(journal.asked) == ["?me:2", "?me:3", "theirs"]


async def test_one_whose_later_ones_left_nothing_is_not() -> None:
    journal = FakeJournal("?me:1", "?other:2")
    assert not await attempts(journal).is_overtaken(slot(), "me", again(1, 2, "theirs", 3))
    assert not await attempts(journal).is_overtaken(slot(), "me", again(1))


async def test_each_is_asked_for_once() -> None:
    """A thousand of them, each with all that come after it, would be half a million questions."""
    journal, here = FakeJournal(), slot()
    known = attempts(journal)
    for number in range(1, 20):
        assert not await known.is_overtaken(here, "me", again(number, *range(number + 1, 21)))
    assert len(journal.asked) == 19
    assert not await known.is_overtaken(slot(), "me", again(19, 20))
    assert len(journal.asked) == 20, "another home of it knows nothing of that"


async def test_a_journal_that_does_not_answer_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(earlier_attempts, "RETRY_SECONDS", 0.0)
    journal = FakeJournal("?me:2")
    journal.failures = 3
    assert await attempts(journal).is_overtaken(slot(), "me", again(1, 2))
