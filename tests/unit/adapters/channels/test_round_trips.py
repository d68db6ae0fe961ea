"""Which commands go together, and what becomes of those whose round trip fails."""

import asyncio
from typing import Any, Self

import pytest

from sharding_app.adapters.channels.round_trips import RoundTrips
from tests.support.slack import SLACK

pytestmark = pytest.mark.asyncio


class Redis:
    """A client whose server answers when the test says so."""

    def __init__(self) -> None:
        self.trips: list[list[tuple[Any, ...]]] = []
        self.answering = asyncio.Event()
        self.fails: Exception | None = None
        self._pipeline: list[tuple[Any, ...]] = []

    def pipeline(self, *, transaction: bool) -> Self:
        assert not transaction
        self._pipeline = []
        return self

    def execute_command(self, *command: Any) -> Any:
        """In a pipeline a command waits for `execute`, and nothing awaits it."""
        self._pipeline.append(command)
        return self._one(command)

    async def execute(self, *, raise_on_error: bool) -> list[Any]:
        assert not raise_on_error
        commands, self._pipeline = self._pipeline, []
        return await self._trip(commands)

    def _one(self, command: tuple[Any, ...]) -> Any:
        async def answered() -> Any:
            (answer,) = await self._trip([command])
            return answer

        return _Lazy(answered)

    async def _trip(self, commands: list[tuple[Any, ...]]) -> list[Any]:
        self.trips.append(commands)
        await self.answering.wait()
        if self.fails is not None:
            raise self.fails
        return [ValueError("no such command") if word == "BAD" else key for word, key in commands]


class _Lazy:
    def __init__(self, begin: Any) -> None:
        self._begin = begin

    def __await__(self) -> Any:
        return self._begin().__await__()


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_commands_that_come_during_a_round_trip_go_together_in_the_next() -> None:
    redis = Redis()
    trips = RoundTrips(lambda: redis)
    asked = [asyncio.ensure_future(trips.run("SET", 0))]
    await settled()
    asked += [
        asyncio.ensure_future(trips.run(word, key)) for word, key in (("SET", 1), ("BAD", 2), ("SET", 3))
    ]
    await settled()
    assert redis.trips == [[("SET", 0)]]
    redis.answering.set()
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert redis.trips == [[("SET", 0)], [("SET", 1), ("BAD", 2), ("SET", 3)]]
    assert answers[:2] == [0, 1]
    assert answers[3] == 3
    assert isinstance(answers[2], ValueError), "the error of one command is its caller's alone"
    assert await trips.run("SET", 4) == 4, "the next one starts anew"


async def test_a_caller_that_gives_up_ends_no_round_trip_and_is_left_out_of_the_next() -> None:
    redis = Redis()
    trips = RoundTrips(lambda: redis)
    first = asyncio.ensure_future(trips.run("SET", 0))
    await settled()
    second, third = (asyncio.ensure_future(trips.run("SET", key)) for key in (1, 2))
    await settled()
    first.cancel()
    second.cancel()
    await settled()
    redis.answering.set()
    assert await third == 2
    assert redis.trips == [[("SET", 0)], [("SET", 2)]]


async def test_a_round_trip_that_fails_is_no_reason_not_to_try_the_next() -> None:
    redis = Redis()
    trips = RoundTrips(lambda: redis)
    asked = [asyncio.ensure_future(trips.run("SET", key)) for key in (0, 1)]
    await settled()
    redis.fails = ConnectionResetError("gone")
    redis.answering.set()
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(each) for each in answers] == [ConnectionResetError] * 2
    redis.fails = None
    assert await trips.run("SET", 2) == 2


async def test_all_that_waits_fails_when_the_way_is_ended() -> None:
    redis = Redis()
    trips = RoundTrips(lambda: redis)
    asked = [asyncio.ensure_future(trips.run("SET", 0))]
    await settled()
    asked.append(asyncio.ensure_future(trips.run("SET", 1)))
    await settled()
    await trips.end()
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(each) for each in answers] == [ConnectionError] * 2
    assert redis.trips == [[("SET", 0)]]
    redis.answering.set()
    assert await trips.run("SET", 2) == 2, "it may be used again"


async def test_the_way_may_be_ended_before_its_first_round_trip_has_begun() -> None:
    redis = Redis()
    redis.answering.set()
    trips = RoundTrips(lambda: redis)
    asked = asyncio.ensure_future(trips.run("SET", 0))
    await asyncio.sleep(0)
    assert redis.trips == [], "the round trip is due in the loop's next turn"
    async with asyncio.timeout(10 * SLACK):
        await trips.end()
        with pytest.raises(ConnectionError):
            await asked
        assert await trips.run("SET", 1) == 1
