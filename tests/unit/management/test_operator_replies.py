"""Commands understand the replies to their requests by code and counts, however these are
worded.
"""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from itertools import repeat
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management.base import CommandError, OutputWrapper

from sharding_app.management.commands import sharding_rebalance
from sharding_app.management.progress import Progress
from sharding_app.operations import erasing
from sharding_app.operations.erasing import NotErased
from sharding_app.ports.journal import Erasure
from sharding_app.protocol.messages import OperatorReply, OperatorRequest, ReplyCode
from tests.support.hurry import hurry


class Answering:
    """A process whose requests are answered by these replies, one after the other."""

    def __init__(self, *replies: OperatorReply) -> None:
        self.queries = self
        self._replies = iter(replies)

    async def operate(self, node: str, request: OperatorRequest) -> OperatorReply:
        return next(self._replies)


async def ask(monkeypatch: pytest.MonkeyPatch, *replies: OperatorReply) -> str:
    """Return the text that the command ends with."""

    async def leader(self: object, process: object) -> str:
        return "n-a"

    monkeypatch.setattr(sharding_rebalance, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(sharding_rebalance.Command, "_leader", leader)
    command = sharding_rebalance.Command()
    command._progress = Progress(command.stderr, quiet=True)
    command._deadline = float("inf")
    process: Any = Answering(*replies)
    return await command._ask_coordinator(process, OperatorRequest(0, "rebalance"))


@pytest.mark.asyncio
async def test_a_reply_is_understood_by_its_code_however_it_is_worded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    former = OperatorReply(1, ReplyCode.NOT_COORDINATOR, "Ask another one.")
    assert await ask(monkeypatch, former, former, OperatorReply(1, ReplyCode.DONE, "Done.")) == "Done."
    paused = OperatorReply(1, ReplyCode.REFUSED, "This node does not coordinate, it is tired.")
    with pytest.raises(CommandError, match="it is tired"):
        await ask(monkeypatch, paused, OperatorReply(1, ReplyCode.DONE, "Done."))


def under_way(events: Iterable[int]) -> Iterator[OperatorReply]:
    """Replies of one wording about an erasure that goes on, with the events erased so far."""
    for number in events:
        yield OperatorReply(1, ReplyCode.BUSY, "It is being erased: try again.", {"events": number})
    yield OperatorReply(1, ReplyCode.DONE, "It is.", {"events": 9, "snapshots": 1, "remembered": 0})


async def erase_by_command(
    monkeypatch: pytest.MonkeyPatch, replies: Iterator[OperatorReply], *, pause: float
) -> tuple[str, Erasure]:
    class Asking:
        def __init__(self) -> None:
            self.queries = self

        async def operate(self, node: str, request: OperatorRequest, timeout: float) -> OperatorReply:
            return next(replies)

    @asynccontextmanager
    async def joined() -> AsyncIterator[Asking]:
        yield Asking()

    async def shard(*_: object) -> int:
        return 3

    async def home(*_: object) -> Any:
        return SimpleNamespace(name="one", incarnation="n-one")

    monkeypatch.setattr(erasing, "joined", joined)
    monkeypatch.setattr(erasing, "AGAIN_SECONDS", pause)
    monkeypatch.setattr(erasing, "_shard", shard)
    monkeypatch.setattr(erasing, "home_of", home)
    progress = Progress(OutputWrapper(io.StringIO()), quiet=True)
    return await erasing._at_home("shop.Cart", "anne", "an operator", 50.0, progress)


def test_the_time_limit_begins_again_while_rows_are_erased(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        found = await erase_by_command(monkeypatch, under_way(range(5)), pause=40.0)
        assert found == ("one", Erasure(events=9, snapshots=1))

    hurry(main())


def test_an_erasure_that_does_not_get_on_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        with pytest.raises(NotErased, match="It is being erased"):
            await erase_by_command(monkeypatch, under_way(repeat(3)), pause=10.0)

    hurry(main())
