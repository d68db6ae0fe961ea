"""Look-ups of retried commands that are asked together: a question that fails is told to all who
asked, and to no other.
"""

import asyncio
from collections.abc import Sequence

import pytest

from sharding_app.adapters.lookups import Lookup, Lookups
from sharding_app.ports.journal import JournalUnavailable, Outcome, RowRefused
from sharding_app.protocol.recovery_limits import Pace

pytestmark = pytest.mark.asyncio


async def test_callers_that_ask_together_are_told_together_and_the_next_question_is_asked() -> None:
    asked: list[list[str]] = []
    refuses = True

    async def query(ours: bool, wanted: Sequence[Lookup]) -> list[Outcome | None]:
        asked.append([each.command_id for each in wanted])
        if refuses:
            raise RowRefused("not these")
        return [Outcome(7, "add", b"1", False), None]

    lookups = Lookups(query)
    first = await asyncio.gather(*(lookups.find(1, "a", name, 0) for name in "xy"), return_exceptions=True)
    assert [type(each) for each in first] == [RowRefused, RowRefused]
    refuses = False
    second = await asyncio.gather(*(lookups.find(1, "a", name, 0) for name in "xy"))
    assert second == [Outcome(7, "add", b"1", False), None]
    assert asked == [["x", "y"], ["x", "y"]]


async def test_a_question_that_was_too_much_is_followed_by_a_smaller_one() -> None:
    """Else all who ask would wait for each other's time limit for ever."""
    asked: list[int] = []

    async def query(ours: bool, wanted: Sequence[Lookup]) -> list[Outcome | None]:
        asked.append(len(wanted))
        if asked[-1] > 100:
            raise JournalUnavailable("canceling statement due to statement timeout")
        return [None] * len(wanted)

    lookups = Lookups(query)

    async def until_answered(number: int) -> None:
        while True:
            try:
                await lookups.find(1, f"e{number}", "x", 0)
            except JournalUnavailable:
                await asyncio.sleep(0)
            else:
                return

    await asyncio.gather(*(until_answered(number) for number in range(1000)))
    assert asked[:4] == [500, 250, 125, 62]
    assert sum(each for each in asked if each <= 100) == 1000


async def test_ids_of_ours_are_asked_for_by_themselves() -> None:
    asked: list[tuple[bool, list[str]]] = []

    async def query(ours: bool, wanted: Sequence[Lookup]) -> list[Outcome | None]:
        asked.append((ours, [each.command_id for each in wanted]))
        return [Outcome(7, "add", b"1", False), None]

    lookups = Lookups(query)
    ids = ["a", "?n-1:1", "b", "?n-1:2"]
    found = await asyncio.gather(*(lookups.find(1, "e", each, 0) for each in ids))
    assert asked == [(False, ["a", "b"]), (True, ["?n-1:1", "?n-1:2"])]
    assert [each is not None for each in found] == [True, True, False, False]


async def test_nothing_that_is_found_late_is_looked_for_again_further_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server may have looked back from the moment of its answer."""
    now, ages = [100.0], list[list[int]]()
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now[0])

    async def query(ours: bool, wanted: Sequence[Lookup]) -> list[Outcome | None]:
        ages.append([each.age_ms for each in wanted])
        now[0] += 3.0 if len(ages) == 1 else 0.1
        return [None] * len(wanted)

    assert await Lookups(query).find(1, "a", "x", 500) is None
    assert ages == [[500 + 1100], [500 + 9900]]


async def test_on_a_slow_server_only_the_first_question_is_asked_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An entity handles nothing meanwhile."""
    now, asked = [100.0], list[str]()
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now[0])

    async def query(ours: bool, wanted: Sequence[Lookup]) -> list[Outcome | None]:
        asked.extend(each.command_id for each in wanted)
        now[0] += 0.3 if wanted[0].command_id == "quick" else 3.0
        return [None] * len(wanted)

    lookups = Lookups(query)
    for each in ("x", "y", "quick", "z"):
        assert await lookups.find(1, "a", each, 0) is None
    assert asked == ["x", "x", "y", "quick", "z"]


async def test_a_look_up_among_quick_ones_is_answered_however_slow_its_own_query_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its spare time is its own: quick queries before its next turn take nothing of it."""
    now, asked = [100.0], list[str]()
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now[0])

    async def query(ours: bool, wanted: Sequence[Lookup]) -> list[Outcome | None]:
        asked.append(wanted[0].command_id)
        now[0] += 3.0 if wanted[0].command_id == "slow" else 0.01
        return [None] * len(wanted)

    lookups = Lookups(query)
    for pace in lookups._paces.values():
        pace.size = pace._most = 1
    await asyncio.gather(*(lookups.find(1, "a", each, 0) for each in ("slow", *"abcdefgh")))
    assert asked.count("slow") == 2


async def test_a_sleep_during_one_query_is_not_looked_back_over_by_others() -> None:
    """An id may be free again, and mean another command."""
    now, ages = [100.0], list[int]()

    async def query(ours: bool, wanted: Sequence[Lookup]) -> list[Outcome | None]:
        ages.append(wanted[0].age_ms)
        now[0] += 8 * 3600.0 if len(ages) == 1 else 0.1
        return [None]

    lookups = Lookups(query, lambda: now[0])
    assert await lookups.find(1, "a", "x", 0) is None
    assert await lookups.find(1, "a", "y", 0) is None
    assert ages[1] > 16 * 3_600_000
    assert ages[2] <= 11_000


async def test_the_time_that_the_machine_sleeps_counts() -> None:
    """The loop's clock stands still meanwhile, and the server's may go on."""
    now, asked = [100.0], list[int]()

    async def query(ours: bool, wanted: Sequence[Lookup]) -> list[Outcome | None]:
        asked.append(wanted[0].age_ms)
        now[0] += 60.0 if len(asked) == 1 else 0.1
        return [None]

    assert await Lookups(query, lambda: now[0]).find(1, "a", "x", 0) is None
    assert len(asked) == 2
    assert asked[1] > 60_000


async def test_an_answer_that_fails_to_be_told_is_an_error_for_all() -> None:
    async def query(ours: bool, wanted: Sequence[Lookup]) -> list[Outcome | None]:
        return []

    lookups = Lookups(query)
    found = await asyncio.gather(*(lookups.find(1, "a", each, 0) for each in "xy"), return_exceptions=True)
    assert [type(each) for each in found] == [ValueError, ValueError]


async def test_those_whose_callers_have_gone_are_not_asked_for() -> None:
    asked: list[list[str]] = []

    async def query(ours: bool, wanted: Sequence[Lookup]) -> list[Outcome | None]:
        asked.append([each.command_id for each in wanted])
        await asyncio.sleep(0)
        return [None] * len(wanted)

    lookups = Lookups(query)
    lookups._paces[False].size = 1
    finding = [asyncio.ensure_future(lookups.find(1, "a", each, 0)) for each in "xyz"]
    await asyncio.sleep(0)
    finding[1].cancel()
    await asyncio.wait(finding)
    assert asked == [["x"], ["z"]]


async def test_what_waits_for_its_turn_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now, ages = [100.0], list[list[int]]()
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now[0])

    async def query(ours: bool, wanted: Sequence[Lookup]) -> list[Outcome | None]:
        ages.append([each.age_ms for each in wanted])
        now[0] += 0.5
        return [None] * len(wanted)

    lookups = Lookups(query)
    for pace in lookups._paces.values():
        pace.size = pace._most = 1
    assert await asyncio.gather(*(lookups.find(1, "a", each, 0) for each in "wxyz")) == [None] * 4
    assert ages == [[1100], [1650], [2200], [2750]]


async def test_after_an_outage_questions_grow_though_each_takes_its_time() -> None:
    """On a busy server the smallest question is no quick one. Asked one by one, they would
    last for minutes, and an entity handles nothing before it has its answer.
    """
    asked: list[int] = []
    is_away = True

    async def query(ours: bool, wanted: Sequence[Lookup]) -> list[Outcome | None]:
        if is_away:
            raise JournalUnavailable("away")
        asked.append(len(wanted))
        return [None] * len(wanted)

    lookups = Lookups(query)
    lookups._paces = {ours: TimedPace(pace) for ours, pace in lookups._paces.items()}  # type: ignore[misc]
    for number in range(20):
        with pytest.raises(JournalUnavailable):
            await lookups.find(1, f"e{number}", "x", 0)
    is_away = False
    await asyncio.gather(*(lookups.find(1, f"e{number}", "x", 0) for number in range(500)))
    assert asked[0] == 1
    assert len(asked) < 30


class TimedPace:
    """A pace whose reads take half a second each."""

    def __init__(self, real: Pace) -> None:
        self._real = real
        self.failed = real.failed

    @property
    def size(self) -> int:
        return self._real.size

    def took(self, seconds: float) -> None:
        self._real.took(0.5)
