"""A hub whose entities are a dict, and browsers that read what they are told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from sharding_app import EventSourced, view
from sharding_app.entities import gateway
from sharding_app.entities.codecs.values import pack
from sharding_app.live.hub import Hub, Limits, Seat
from sharding_app.live.topics import Topic, topic_of
from sharding_app.protocol.call import Call
from tests.support.slack import SLACK

SECONDS = 10.0 * SLACK


class Auction(EventSourced, name="tests.live.Auction"):
    @view(public=True)
    def current(self) -> Any:
        return {}

    @view
    def secret(self) -> Any:
        return 0

    @view(public=True)
    def bid_of(self, name: str) -> int:
        return 0


class Entities:
    """The gateway: `change` is a commit. `errors` are raised by the next questions."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.errors: list[Exception] = []
        self.follow_error: Exception | None = None
        self.asked = 0
        self.following: list[Following] = []
        "Those that follow now."
        self.number = 1
        self.silent: set[str] = set()
        "Those of which nothing is heard."

    def is_silent(self, type_name: str, entity: str) -> bool:
        return entity in self.silent

    def follow(self, type_name: str, entity: str) -> Following:
        return Following(self, entity)

    async def ask(self, call: Call) -> bytes:
        self.asked += 1
        await asyncio.sleep(0)
        if self.errors:
            raise self.errors.pop(0)
        return pack(self.values.get(call.entity, {}))

    def change(self, entity: str, value: Any) -> None:
        self.values[entity] = value
        self.number += 1
        for each in self.following:
            if each.entity == entity:
                each.moves.set()


class Following:
    def __init__(self, entities: Entities, entity: str) -> None:
        self.entity = entity
        self.moves = asyncio.Event()
        self._entities = entities
        entities.following.append(self)

    async def moved(self, seen: int) -> int:
        if self._entities.follow_error is not None:
            raise self._entities.follow_error
        if seen >= 0:
            await self.moves.wait()
        self.moves.clear()
        return self._entities.number

    def close(self) -> None:
        self._entities.following.remove(self)


class Browser:
    """Reads all that its seat has, or nothing while it is slow."""

    def __init__(self, seat: Seat) -> None:
        self.seat = seat
        self.items: list[Any] = []
        self.ended = False
        self._reading: asyncio.Task[None] | None = None

    def read(self, *, answers: bool = True) -> None:
        self._reading = asyncio.ensure_future(self._read(answers))

    async def stop(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])

    async def _read(self, answers: bool) -> None:
        while (items := await self.seat.next()) is not None:
            for text in items:
                item = json.loads(text)
                if "ask" not in item:
                    self.items.append(item)
                elif answers:
                    self.seat.got(item["ask"])
        self.ended = True

    async def sees(self, wanted: Any) -> None:
        """Wait until the last item has that value, or is that."""
        await until(lambda: bool(self.items) and wanted in (self.items[-1], self.items[-1].get("value")))


class Stage:
    def __init__(self, hub: Hub, entities: Entities) -> None:
        self.hub = hub
        self.entities = entities
        self.user: Any = "ann"
        self.may: Callable[[Topic, Any], bool] = lambda topic, user: user == "ann"
        self.looked = 0

    def seat(self, cookie: str = "ann", *, answers: bool = True) -> Seat:
        scope = {"headers": [(b"cookie", cookie.encode())]}
        seat = self.hub.admit(scope, frames=True, answers=answers)
        assert seat is not None
        return seat

    async def browser(self, *tokens: str, cookie: str = "ann", answers: bool = True) -> Browser:
        browser = Browser(self.seat(cookie, answers=answers))
        await self.hub.watch(browser.seat, list(tokens))
        browser.read()
        return browser


def token(entity: str, view: str = "current", *args: Any, template: str = "") -> str:
    return topic_of(Auction.ref(entity), view, args, template, "en").token


@asynccontextmanager
async def stage(limits: Limits | None = None) -> AsyncIterator[Stage]:
    entities = Entities()
    made: list[Stage] = []

    def find_user(scope: Mapping[str, Any]) -> Any:
        made[0].looked += 1
        user = made[0].user
        if isinstance(user, Exception):
            raise user
        return user

    hub = Hub(
        limits or Limits(), find_user, lambda topic, user: topic.handler.public or made[0].may(topic, user)
    )
    made.append(Stage(hub, entities))
    with gateway.use_gateway(entities):  # type: ignore[type-var] # as far as followers need it
        yield made[0]
        for seat in list(hub.seats):
            hub.leave(seat)
        await until(lambda: not entities.following)
        assert not hub.watches
    await hub.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.002)


def play(scene: Callable[[Stage], Awaitable[None]], limits: Limits | None = None) -> None:
    async def main() -> None:
        async with stage(limits) as found:
            await scene(found)

    asyncio.run(main())
