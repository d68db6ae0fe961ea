"""Questions to regions from a process that only asks: their errors are typed, whatever is away."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest

from project.shop.entities import Cart
from sharding_app import AskTimeout, ClusterSharding, ShardingError, Unavailable
from sharding_app.client import gateway
from sharding_app.client.gateway import ClusterGateway
from sharding_app.client.portal import BackgroundPortal
from sharding_app.client.region_queries import inspect
from sharding_app.entities.sharding.queries import (
    GetClusterShardingStats,
    GetCurrentRegions,
    GetShardLocations,
    GracefulShutdown,
    Question,
    Rescale,
    UpdateShardLocations,
)
from sharding_app.ports.store import StoreUnavailable
from sharding_app.protocol.records import NumberOfWorkers
from sharding_app.runtime.node.process import Process
from tests.support.live import Live, until
from tests.support.slack import SLACK


@contextmanager
def locked(client: Live) -> Iterator[None]:
    """Another session has locked the tables, as a migration may."""
    with psycopg.connect(client.database_url) as connection:
        connection.execute(
            "LOCK TABLE sharding_node, sharding_type, sharding_location IN ACCESS EXCLUSIVE MODE"
        )
        yield
        connection.rollback()


@pytest.mark.parametrize(
    "question",
    [GetClusterShardingStats(), GetCurrentRegions(), GetShardLocations(), UpdateShardLocations({1: "a"})],
    ids=lambda each: type(each).__name__,
)
def test_a_store_that_does_not_answer_is_a_typed_error(client: Live, question: Question) -> None:
    Cart.ref("questions").sync.add("a")
    region = ClusterSharding.shard_region("shop.Cart")
    with locked(client), pytest.raises(Unavailable, match=r"cannot be answered: .*lock timeout") as told:
        region.sync.ask(question)
    assert told.value.stored == "nothing", "the server itself has said no"


class Lost:
    """Stands for a process whose store does not answer, once the first call has had its effect."""

    def __init__(self, rescales: bool) -> None:
        self.ports = self
        self.store = self
        self.rescales = rescales
        self.looks = 0

    async def rescale(self, type_name: str, workers: int) -> int:
        if self.rescales:
            return workers
        raise StoreUnavailable("the connection is lost")

    async def workers(self) -> list[NumberOfWorkers]:
        self.looks += 1
        if self.looks < 3:
            raise StoreUnavailable("away", answered=True)
        return [NumberOfWorkers("w", 2, 2)]


def test_a_rescale_whose_answer_is_lost_may_be_stored() -> None:
    with pytest.raises(Unavailable, match="the connection is lost") as told:
        asyncio.run(inspect(Lost(rescales=False), "w", Rescale(2), 5.0))  # type: ignore[arg-type]
    assert told.value.stored == "unknown"


def test_a_stored_rescale_is_waited_for_while_the_store_is_away() -> None:
    found = asyncio.run(inspect(Lost(rescales=True), "w", Rescale(2), 5.0))  # type: ignore[arg-type]
    assert found == NumberOfWorkers("w", 2, 2)


async def fail() -> Process:
    raise StoreUnavailable("no server")


told = threading.Event()


async def block() -> Process:
    told.wait(30 * SLACK)  # it stands for a loop that is held by other work, until the caller is told
    raise StoreUnavailable("no server")


@pytest.mark.parametrize(
    ("make", "seconds", "beyond", "error", "said"),
    [(fail, 1.0, 20.0, Unavailable, "no server"), (block, 0.2, 0.2, AskTimeout, "no answer to a question")],
)
def test_a_thread_gets_typed_errors_as_a_loop_does(
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[], Awaitable[Process]],
    seconds: float,
    beyond: float,
    error: type[ShardingError],
    said: str,
) -> None:
    monkeypatch.setattr(gateway, "ANSWER_SECONDS", beyond)
    told.clear()
    background = BackgroundPortal(make, asyncio.new_event_loop, seconds)
    try:
        with pytest.raises(error, match=said):
            ClusterGateway(background.portal).inspect_sync("shop.Cart", GetClusterShardingStats(), None)
    finally:
        told.set()
        background.close()


def test_what_a_region_is_told_and_cannot_do_is_logged(
    client: Live, caplog: pytest.LogCaptureFixture
) -> None:
    Cart.ref("questions").sync.add("a")
    ClusterSharding.shard_region("shop.Cart").tell(GracefulShutdown())
    until(lambda: "GracefulShutdown was not carried out" in caplog.text, 20, "it is logged")
