"""A type that stores no messages and no timers runs no query for them: not with a command, not at
the start of a shard, and not now and then.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import psycopg
import pytest
import pytest_asyncio

from sharding_app import EventSourced, applies, command, event
from sharding_app.adapters.postgres import appending, appending_messages
from sharding_app.runtime.base.config import DeliverySettings, NodeConfig
from sharding_app.testing.cluster import MemoryCluster
from tests.integration.lives.on_postgres import PostgresCluster
from tests.support.slack import SLACK

pytestmark = pytest.mark.asyncio(loop_scope="function")

SECONDS = 20.0 * SLACK
LOOK_SECONDS = 0.02
OVERDUE = "in which something should have gone out"
ABOUT_MESSAGES = ("sharding_message", "sharding_append_v1")
NEWS = "FROM sharding_type t WHERE t.uses_messages"


@event
class Counted:
    pass


class Still(EventSourced, name="unused.Still"):
    """Uses no messages."""

    count: int = 0

    @command
    def add(self) -> int:
        self.persist(Counted())
        return self.count

    @applies(Counted)
    def on_counted(self, happened: Counted) -> None:
        self.count += 1


class Moving(Still, name="unused.Moving"):
    @command
    def pass_on(self) -> None:
        self.send(Still.ref("target").add)


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note all statements of this process from now on."""
    found: list[str] = []

    def noted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: object, query: object, *args: Any, **options: Any) -> Any:
            found.append(query.decode() if isinstance(query, bytes) else str(query))
            return function(self, query, *args, **options)

        return call

    for name in ("execute", "copy"):
        monkeypatch.setattr(psycopg.AsyncCursor, name, noted(getattr(psycopg.AsyncCursor, name)))

    def appended(function: Callable[..., Any], statement: bytes) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            found.append(statement.decode())
            return function(*args)

        return call

    # Appends go by libpq, and not by a cursor.
    for module, name, statement in (
        (appending, "_prepare", appending.INSERT_EVENT),
        (appending, "_copy", appending.COPY_EVENTS),
        (appending_messages, "_append", appending_messages.APPEND),
    ):
        monkeypatch.setattr(module, name, appended(getattr(module, name), statement))
    return found


@pytest_asyncio.fixture
async def cluster(params: dict[str, Any]) -> AsyncIterator[MemoryCluster]:
    config = NodeConfig(deliveries=DeliverySettings(net_seconds=0.1))
    async with PostgresCluster(params, [Still, Moving], nodes=1, config=config) as made:
        with made.in_use():
            yield made


async def until(condition: Callable[[], object]) -> None:
    for _ in range(int(SECONDS / LOOK_SECONDS)):
        if condition():
            return
        await asyncio.sleep(LOOK_SECONDS)
    raise AssertionError("it did not come to that")


def count(statements: list[str], text: str) -> int:
    return sum(text in each for each in statements)


async def test_no_query_is_about_messages(statements: list[str], cluster: MemoryCluster) -> None:
    assert [await Still.ref(str(number)).add() for number in range(20)] == 20 * [1]
    assert await asyncio.gather(*(Moving.ref(str(number)).add() for number in range(50))) == 50 * [1]
    await cluster.add_node()
    assert await Still.ref("0").add() == 2
    read = count(statements, NEWS)
    await until(lambda: count(statements, NEWS) >= read + 3)
    assert [each for each in statements if any(text in each for text in ABOUT_MESSAGES)] == []
    commits = [each for each in statements if "INTO sharding_event" in each or "COPY sharding_event" in each]
    assert commits, "the statements are noted"
    # From the first message on there is something to look for.
    await Moving.ref("0").pass_on()
    await until(lambda: count(statements, "sharding_append_v1") and count(statements, OVERDUE))
