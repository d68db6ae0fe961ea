"""Look-ups of retried commands that are asked together: a question that fails is told to all who asked, and to no other."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from sharding_app.adapters.postgres.lookups import Lookups
from sharding_app.ports.journal import Outcome, RowRefused

pytestmark = pytest.mark.asyncio


async def test_whoever_asks_together_is_told_together_and_the_next_question_is_asked() -> None:
    asked: list[list[str]] = []
    refuses = True

    async def rows(query: str, params: dict[str, Any]) -> Sequence[tuple[Any, ...]]:
        asked.append(params["command_ids"])
        if refuses:
            raise RowRefused("not these")
        return [(1, 7, "add", b"1", False)]

    lookups = Lookups(rows)
    first = await asyncio.gather(*(lookups.find(1, "a", name, 0) for name in "xy"), return_exceptions=True)
    assert [type(each) for each in first] == [RowRefused, RowRefused]
    refuses = False
    second = await asyncio.gather(*(lookups.find(1, "a", name, 0) for name in "xy"))
    assert second == [Outcome(7, "add", b"1", False), None]
    assert asked == [["x", "y"], ["x", "y"]]
