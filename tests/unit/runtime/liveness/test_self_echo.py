"""What a node takes for deafness, and what it says of it while the store is away and comes back."""

import asyncio

import pytest

from sharding_app.adapters.memory.server import MemoryServer
from sharding_app.adapters.memory.store import MemoryStore
from sharding_app.protocol.messages import Echo
from sharding_app.runtime.liveness.self_echo import Hearing

INTERVAL = 1.0
DEAF_AFTER = 3.0
LOOK = 0.25


class Row:
    """A node that only writes down what is said of it."""

    incarnation = "n1"

    def __init__(self) -> None:
        self.row: bool | None = None

    async def say_deaf(self, deaf: bool) -> None:
        self.row = deaf

    async def step_aside(self) -> None:
        raise AssertionError("it hears again")


class SlowRow(Row):
    """A node whose first word takes longer to be written than its second."""

    def __init__(self) -> None:
        super().__init__()
        self.first = asyncio.Event()
        self.writes = 0
        self.begun = asyncio.Event()

    async def say_deaf(self, deaf: bool) -> None:
        self.writes += 1
        self.begun.set()
        if self.writes == 1:
            await self.first.wait()
        self.row = deaf


class Moment:
    """A clock that stands until it is told to go on."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Ear:
    """A node that looks four times a second, over a layer that brings each of its words back after
    `takes`, or never.
    """

    def __init__(self) -> None:
        self.moment = Moment()
        self.hearing = Hearing(
            Row(), self._echo, MemoryStore(MemoryServer(now=self.moment)), self.moment,
            interval_seconds=INTERVAL, deaf_after_seconds=DEAF_AFTER,
        )  # fmt: skip
        self.takes: float | None = 0.0
        self._under_way: list[tuple[float, int]] = []

    async def _echo(self, number: int) -> None:
        if self.takes is not None:
            self._under_way.append((self.moment.now + self.takes, number))

    def live(self, seconds: float) -> list[float]:
        """Go on for that time; return the moments in which it said that it is deaf."""
        until, said = self.moment.now + seconds, []
        while self.moment.now < until:
            self.moment.now += LOOK
            arrived = sorted(each for each in self._under_way if each[0] <= self.moment.now)
            for each in arrived:
                self._under_way.remove(each)
                self.hearing.hear("n1", Echo(each[1]))
            said += self.look()
        return said

    def look(self) -> list[float]:
        """Do what the node does at each tick."""
        if self.hearing.due():
            asyncio.run(self.hearing.say())
        return [self.moment.now] if self.hearing.changed() and self.hearing.says_deaf else []

    def freeze(self, seconds: float) -> None:
        """Let the process stand still: it looks before it reads what has arrived meanwhile."""
        self.moment.now += seconds


def test_words_that_never_come_back_are_deafness() -> None:
    ear = Ear()
    assert ear.live(10.0) == []
    ear.takes = None
    (deaf_at,) = ear.live(20.0)
    assert 13.0 - INTERVAL <= deaf_at <= 13.0 + INTERVAL


def test_words_that_come_late_are_no_silence() -> None:
    """A layer that becomes slower makes gaps between words that were said second by second."""
    ear = Ear()
    assert ear.live(10.0) == []
    for takes, seconds in ((2.5, INTERVAL), (5.0, INTERVAL), (6.0, 30.0)):
        ear.takes = takes
        assert ear.live(seconds) == []
    ear.takes = 0.0
    assert ear.live(10.0) == []


def test_a_layer_that_was_slow_and_fell_silent_is_waited_for_twice_as_long() -> None:
    ear = Ear()
    ear.takes = 30.0
    ear.live(100.0)
    assert not ear.hearing.says_deaf
    ear.takes, heard_last = None, ear.moment.now
    ear._under_way.clear()
    (deaf_at,) = ear.live(20.0)
    assert 2 * DEAF_AFTER - INTERVAL <= deaf_at - heard_last <= 2 * DEAF_AFTER + LOOK


def test_a_process_that_stood_still_has_not_listened() -> None:
    ear = Ear()
    assert ear.live(10.0) == []
    ear.takes = None
    ear.freeze(2 * DEAF_AFTER)
    assert ear.look() == [], "what has arrived meanwhile is not read yet"
    assert len(ear.live(DEAF_AFTER)) == 1, "but it goes on counting"


def test_a_node_that_heard_after_it_stood_still_is_heard_no_longer_than_that() -> None:
    ear = Ear()
    assert ear.live(10.0) == []
    ear.freeze(100.0)
    assert ear.live(INTERVAL) == []
    ear.takes = None
    assert len(ear.live(2 * DEAF_AFTER)) == 1


class Watching(Hearing):
    """The hearing of a node that is deaf while others hear, as it is told when it asks and is let
    go on.
    """

    def __init__(self) -> None:
        self.moment, self.node = Moment(), Leaver()
        super().__init__(
            self.node, self._nowhere, MemoryStore(MemoryServer(now=self.moment)), self.moment,
            interval_seconds=0.01, deaf_after_seconds=DEAF_AFTER,
        )  # fmt: skip
        self.asked, self.answers = asyncio.Event(), asyncio.Event()
        self.fall_silent()

    async def _nowhere(self, number: int) -> None: ...

    async def _others_hear(self) -> bool:
        self.asked.set()
        await self.answers.wait()
        return True

    def fall_silent(self) -> None:
        while not self.says_deaf:
            self.moment.now += 0.01
            self.changed()

    async def hear_again(self) -> None:
        await self.say()
        self.hear("n1", Echo(self._said))
        assert self.changed()


class Leaver(Row):
    """A node that may step aside."""

    def __init__(self) -> None:
        super().__init__()
        self.left = False

    async def step_aside(self) -> None:
        self.left = True


def test_a_node_that_is_deaf_for_long_while_others_hear_steps_aside() -> None:
    async def main() -> None:
        hearing = Watching()
        hearing.answers.set()
        telling = asyncio.create_task(hearing.tell())
        while not telling.done():
            hearing.moment.now += 0.01
            await asyncio.sleep(0)
        assert hearing.node.left

    asyncio.run(main())


@pytest.mark.parametrize("then", ["hears", "is deaf once more"])
def test_a_node_that_hears_again_while_it_asks_for_others_stays(then: str) -> None:
    """And where it is deaf once more a moment later, the others' time counts from then on."""

    async def main() -> None:
        hearing = Watching()
        hearing.answers.set()
        telling = asyncio.create_task(hearing.tell())
        await hearing.asked.wait()
        hearing.answers.clear()
        hearing.asked.clear()
        hearing.moment.now += 1.0
        await hearing.asked.wait()
        await hearing.hear_again()
        if then != "hears":
            hearing.fall_silent()
        hearing.answers.set()
        await telling
        assert not hearing.node.left

    asyncio.run(main())


def test_the_newest_word_stands_in_the_row_whichever_is_written_last() -> None:
    async def main() -> None:
        async def echo(number: int) -> None: ...

        node, now = SlowRow(), [0.0]
        hearing = Hearing(
            node,
            echo,
            MemoryStore(MemoryServer(now=lambda: now[0])),
            lambda: now[0],
            interval_seconds=0.01,
            deaf_after_seconds=1.0,
        )
        hearing.says_deaf = True
        older = asyncio.create_task(hearing.tell())
        await node.begun.wait()
        hearing.says_deaf = False
        await hearing.tell()
        assert node.row is False
        node.first.set()
        await older
        assert node.row is False

    asyncio.run(main())
