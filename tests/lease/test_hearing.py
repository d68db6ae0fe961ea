"""What a node says of its hearing, while the store is away and comes back."""

import asyncio

from sharding_app.adapters.memory.server import MemoryServer
from sharding_app.adapters.memory.store import MemoryStore
from sharding_app.runtime.hearing import Hearing


class SlowRow:
    """A node whose first word takes longer to be written than its second."""

    incarnation = "n1"

    def __init__(self) -> None:
        self.row: bool | None = None
        self.first = asyncio.Event()
        self.writes = 0
        self.begun = asyncio.Event()

    async def say_deaf(self, deaf: bool) -> None:
        self.writes += 1
        self.begun.set()
        if self.writes == 1:
            await self.first.wait()
        self.row = deaf

    async def step_aside(self) -> None:
        raise AssertionError("it hears again")


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
