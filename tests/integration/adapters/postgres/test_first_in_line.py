"""Look-ups of earlier attempts come before the other work that waits for the journal's line: an
entity handles nothing until it has its answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import psycopg
import pytest

from sharding_app.adapters.postgres import journal as module
from sharding_app.adapters.postgres.connection import Connection, Line
from sharding_app.adapters.postgres.journal import PostgresJournal
from sharding_app.adapters.postgres.together import Together
from sharding_app.ports.journal import JournalUnavailable
from sharding_app.protocol.records import Lineage
from tests.integration.adapters.postgres.writers import connect, give_homes

pytestmark = pytest.mark.asyncio


class Held:
    """A piece of work that holds the line until it is let go."""

    def __init__(self, line: Line) -> None:
        self.begun, self.may_end = asyncio.Event(), asyncio.Event()
        self.task = asyncio.ensure_future(line.run(self._work))

    async def _work(self, _: Connection) -> None:
        self.begun.set()
        await self.may_end.wait()


async def test_work_that_comes_first_waits_for_one_piece_of_the_others(params: dict[str, Any]) -> None:
    line = Line(params, purpose="test")
    done: list[str] = []

    def work(name: str) -> Any:
        async def noted(_: Connection) -> None:
            done.append(name)

        return noted

    held = Held(line)
    await held.begun.wait()
    others = [asyncio.ensure_future(line.run(work(name))) for name in "abc"]
    await asyncio.sleep(0)
    firsts = [asyncio.ensure_future(line.run(work(name), first=True)) for name in "12"]
    await asyncio.sleep(0)
    others[1].cancel()
    held.may_end.set()
    await asyncio.wait([held.task, *others, *firsts])
    assert done == ["a", "1", "2", "c"]
    await line.close()


async def test_after_a_close_new_work_does_not_wait_for_the_old(params: dict[str, Any]) -> None:
    line = Line(params, purpose="test")
    held = Held(line)
    await held.begun.wait()
    old = [asyncio.ensure_future(line.rows("coordinator")) for _ in range(3)]
    await asyncio.sleep(0)
    await line.close()
    assert await line.rows("coordinator") == []
    assert await line.rows("coordinator", first=True) == []
    assert not any(each.done() for each in old)
    held.may_end.set()
    assert await asyncio.gather(*old) == [[]] * 3
    await asyncio.wait([held.task])
    await line.close()


async def test_a_look_up_does_not_wait_for_the_messages_beside_it(params: dict[str, Any]) -> None:
    journal = PostgresJournal(params)
    held = Held(journal._beside)
    await held.begun.wait()
    done: list[str] = []

    async def told(name: str, asked: Any) -> None:
        await asked
        done.append(name)

    pages = [asyncio.ensure_future(told("due", journal.due([(1, 0)], 1.0, 1))) for _ in range(5)]
    await asyncio.sleep(0)
    looked = asyncio.ensure_future(told("look-up", journal.outcome(1, "a", "x", 0)))
    for _ in range(5):
        await asyncio.sleep(0)
    held.may_end.set()
    await asyncio.wait([held.task, looked, *pages])
    assert done.index("look-up") <= 1
    assert len(done) == 6
    await journal.close()


async def test_homes_are_asked_for_together(params: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    async with await connect(params) as connection:
        await give_homes(connection, 2)
    asked: list[int] = []
    real = module._homes

    async def counted(connection: Connection, wanted: Any) -> Any:
        asked.append(len(wanted))
        return await real(connection, wanted)

    monkeypatch.setattr(module, "_homes", counted)
    journal = PostgresJournal(params)
    held = Held(journal._beside)
    await held.begun.wait()
    here = 1, 0, 1, "home"
    wanted = [here, (1, 1, 1, "home"), (1, 2, 1, "home"), (1, 1, 2, "home"), (1, 1, 1, "n-1"), here]
    looks = [asyncio.ensure_future(journal.is_home(*each)) for each in wanted]
    await asyncio.sleep(0)
    looks[2].cancel()
    await asyncio.sleep(0)
    held.may_end.set()
    assert await asyncio.gather(*looks[:2], *looks[3:]) == [True, True, False, False, True]
    assert asked == [5]
    assert await journal.is_home(*here)
    assert asked == [5, 1]
    await journal.close()


async def test_a_look_that_fails_is_told_to_all_who_wait_for_it(params: dict[str, Any]) -> None:
    journal = PostgresJournal({**params, "port": 1})
    found = await asyncio.gather(
        *(journal.is_home(1, number, 1, "n-1") for number in range(3)), return_exceptions=True
    )
    assert [type(each) for each in found] == [JournalUnavailable] * 3
    await journal.close()


async def test_a_question_after_the_statement_has_begun_gets_its_own(params: dict[str, Any]) -> None:
    """The first statement may have seen rows that are too old for it."""
    begun, may_end, asked = asyncio.Event(), asyncio.Event(), list[list[str]]()

    async def ask(_: Connection, keys: Sequence[str]) -> int:
        asked.append(list(keys))
        begun.set()
        await may_end.wait()
        return len(asked)

    line = Line(params, purpose="test")
    together = Together(line, ask)
    first = asyncio.ensure_future(together.find("a"))
    await begun.wait()
    second = [asyncio.ensure_future(together.find(each)) for each in "ab"]
    await asyncio.sleep(0)
    may_end.set()
    assert await asyncio.gather(first, *second) == [1, 2, 2]
    assert asked == [["a"], ["a", "b"]]
    await line.close()


async def test_the_others_are_told_when_the_caller_that_asks_goes(params: dict[str, Any]) -> None:
    journal = PostgresJournal(params)
    held = Held(journal._beside)
    await held.begun.wait()
    looks = [asyncio.ensure_future(journal.is_home(1, number, 1, "home")) for number in range(3)]
    await asyncio.sleep(0)
    looks[0].cancel()
    with pytest.raises(JournalUnavailable, match="has gone"):
        await looks[1]
    later = asyncio.ensure_future(journal.is_home(1, 0, 1, "home"))
    held.may_end.set()
    assert not await later
    with pytest.raises(JournalUnavailable, match="has gone"):
        await looks[2]
    await journal.close()


async def test_what_was_asked_before_a_failover_is_not_answered_after_it(params: dict[str, Any]) -> None:
    line = Line(params, purpose="test")
    asked: list[list[str]] = []

    async def ask(_: Connection, keys: Sequence[str]) -> list[str]:
        asked.append(list(keys))
        return asked[-1]

    await line.open()
    lived = line.lineage
    assert lived is not None
    line.live_in(lived)
    together, held = Together(line, ask), Held(line)
    await held.begun.wait()
    line.live_in(Lineage(lived.system, lived.timeline - 1))
    former = [asyncio.ensure_future(together.find(each)) for each in "ab"]
    await asyncio.sleep(0)
    line.live_in(lived)
    present = asyncio.ensure_future(together.find("c"))
    await asyncio.sleep(0)
    held.may_end.set()
    found = await asyncio.gather(*former, return_exceptions=True)
    assert [type(each) for each in found] == [psycopg.OperationalError] * 2
    assert await present == ["c"]
    assert asked == [["c"]]
    await held.task
    await line.close()


async def test_an_answer_that_comes_with_a_failover_is_not_believed(params: dict[str, Any]) -> None:
    line = Line(params, purpose="test")

    async def ask(_: Connection, keys: Sequence[str]) -> list[str]:
        return list(keys)

    await line.open()
    lived = line.lineage
    assert lived is not None
    line.live_in(lived)
    together, held = Together(line, ask), Held(line)
    await held.begun.wait()
    first, second = (asyncio.ensure_future(together.find(each)) for each in "ab")
    await asyncio.sleep(0)
    first.add_done_callback(lambda _: line.live_in(Lineage(lived.system, lived.timeline + 1)))
    held.may_end.set()
    assert await first == ["a", "b"]
    with pytest.raises(psycopg.OperationalError, match="gone on"):
        await second
    await held.task
    await line.close()
