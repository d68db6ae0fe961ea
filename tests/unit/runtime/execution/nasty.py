"""Entities that do to their host whatever Python lets them."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar, cast

from sharding_app import (
    DurableState,
    Entity,
    EventSourced,
    Rejected,
    ShardingSettings,
    applies,
    command,
    event,
    query,
)


class Escape(BaseException):
    """No `Exception`."""


class Mute(Exception):
    """Cannot even be shown."""

    def __str__(self) -> str:
        raise LookupError("no text")

    __repr__ = __str__


class Chained(Exception):
    def __init__(self) -> None:
        super().__init__("its own cause")
        self.__cause__ = self


class Unnamed(Rejected):
    """A refusal whose constructor never calls ours."""

    def __init__(self) -> None:
        self.left = 3


class OfAResponse(Exception):
    """Looks its attributes up in a response, as errors of clients for HTTP do."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found: dict[str, Any] = {}
        return found[name]


ERRORS: dict[str, Any] = {
    "value": lambda: ValueError("plain"),
    "escape": Escape,
    "exit": lambda: SystemExit(3),
    "interrupt": KeyboardInterrupt,
    "generator_exit": GeneratorExit,
    "cancelled": asyncio.CancelledError,
    "recursion": RecursionError,
    "memory": lambda: MemoryError("one allocation was too large"),
    "stop": lambda: StopIteration(1),
    "stop_async": StopAsyncIteration,
    "group": lambda: BaseExceptionGroup("several", [Escape(), ValueError()]),
    "mute": Mute,
    "chained": Chained,
    "unnamed": Unnamed,
    "mute_params": lambda: Rejected("no", params={"by": Mute()}),
    "mute_text": lambda: Rejected(cast(str, Mute())),
    "of_a_response": lambda: OfAResponse("no"),
}


class Trap:
    """Raises where it is told to, as long as it is armed."""

    armed: ClassVar[str] = ""
    error: ClassVar[str] = ""

    @classmethod
    def spring(cls, place: str) -> None:
        if Trap.armed == place:
            make = ERRORS[Trap.error]
            raise make()


@event
class Stepped:
    by: int


class Nasty(EventSourced, name="nasty.Nasty"):
    settings = ShardingSettings(
        number_of_shards=1, snapshot_when=lambda entity, event, seq: Nasty.asked(), keep_snapshots=1
    )
    total: int

    def __init__(self) -> None:
        self.total = 0
        Trap.spring("init")

    @staticmethod
    def asked() -> bool:
        Trap.spring("snapshot_when")
        return True

    @command
    def step(self, by: int) -> int:
        self.persist(Stepped(by))
        Trap.spring("staged")
        return self.total

    @command
    async def step_later(self, by: int) -> int:
        await asyncio.sleep(0)
        Trap.spring("async")
        await self.persist(Stepped(by))
        Trap.spring("async_partly")
        return self.total

    @command(thread=True)
    def step_in_a_thread(self, by: int) -> int:
        Trap.spring("thread")
        self.persist(Stepped(by))
        return self.total

    @command
    def step_with_rows(self, by: int) -> int:
        self.persist(Stepped(by), in_transaction=lambda: Trap.spring("also"))
        return self.total

    @command
    async def step_with_rows_now(self, by: int) -> int:
        await self.persist(Stepped(by), in_transaction=lambda: Trap.spring("also_now"))
        return self.total

    @query
    def sum(self) -> int:
        Trap.spring("query")
        return self.total

    @applies(Stepped)
    def on_stepped(self, happened: Stepped) -> None:
        Trap.spring("applier")
        self.total += happened.by

    def snapshot(self) -> int:
        Trap.spring("snapshot")
        return self.total

    def restore(self, state: int) -> None:
        Trap.spring("restore")
        self.total = state

    def __setattr__(self, name: str, value: object) -> None:
        Trap.spring(f"set {name}")
        super().__setattr__(name, value)

    def __getattribute__(self, name: str) -> Any:
        if name == "context":
            Trap.spring("get context")
        return super().__getattribute__(name)

    def __del__(self) -> None:
        Trap.spring("del")


class NastyValue(DurableState, name="nasty.Value"):
    settings = ShardingSettings(number_of_shards=1)
    total: int

    def __init__(self) -> None:
        self.total = 0

    @command
    def step(self, by: int) -> int:
        self.total += by
        Trap.spring("value")
        return self.total

    @query
    def sum(self) -> int:
        return self.total

    def snapshot(self) -> int:
        Trap.spring("value_snapshot")
        return self.total

    def restore(self, state: int) -> None:
        Trap.spring("value_restore")
        self.total = state


class Odd(Entity, name="nasty.Odd"):
    """Handlers that raise nothing and are trouble all the same."""

    @command
    async def never(self) -> None:
        await asyncio.get_running_loop().create_future()

    @command
    async def cancel_me(self) -> int:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)
        return 1

    @command
    async def cancel_me_and_return(self) -> int:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return 1

    @command
    def huge(self) -> str:
        return "x" * 50_000_000

    @command
    def a_generator(self) -> Any:
        return (number for number in range(3))

    @command
    def deep(self) -> Any:
        found: Any = []
        for _ in range(100_000):
            found = [found]
        return found

    @command
    def endless(self) -> Any:
        found: list[Any] = []
        found.append(found)
        return found

    @command
    def a_coroutine(self) -> Any:
        return asyncio.sleep(0)

    @query
    def fine(self) -> int:
        return 1


class Good(EventSourced, name="nasty.Good"):
    """Lives beside them."""

    total: int = 0

    @command
    def step(self, by: int) -> int:
        self.persist(Stepped(by))
        return self.total

    @applies(Stepped)
    def on_stepped(self, happened: Stepped) -> None:
        self.total += happened.by
