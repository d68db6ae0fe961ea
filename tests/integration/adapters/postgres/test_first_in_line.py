"""Look-ups of earlier attempts come before the other work that waits for the journal's line: an
entity handles nothing until it has its answer.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sharding_app.adapters.postgres.connection import Connection, Line
from sharding_app.adapters.postgres.journal import PostgresJournal

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
    assert await asyncio.gather(line.rows("coordinator"), line.rows("coordinator", first=True)) == [[], []]
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

    homes = [asyncio.ensure_future(told("home", journal.is_home(1, 0, 1, "n-1"))) for _ in range(5)]
    await asyncio.sleep(0)
    looked = asyncio.ensure_future(told("look-up", journal.outcome(1, "a", "x", 0)))
    for _ in range(5):
        await asyncio.sleep(0)
    held.may_end.set()
    await asyncio.wait([held.task, looked, *homes])
    assert done.index("look-up") <= 1
    assert len(done) == 6
    await journal.close()
