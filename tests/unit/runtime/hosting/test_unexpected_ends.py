"""Errors and moments behind which something would wait for ever, or run where it may not."""

from __future__ import annotations

import asyncio
import dataclasses
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from sharding_app import (
    Entity,
    InvalidCall,
    ShardingSettings,
    Unavailable,
    command,
    on_start,
)
from sharding_app.client import following
from sharding_app.client.following import Hub
from sharding_app.entities.registry import registry
from sharding_app.protocol.following import News, Question, encode
from sharding_app.runtime.hosting.remembered import Remembering
from sharding_app.runtime.hosting.shard_leases import LeaseKeeper, ShardGate
from sharding_app.runtime.node.coordinator_terms import CoordinatorTerms
from sharding_app.runtime.projections import worker
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.counter_cluster import until
from tests.unit.runtime.hosting.arbiter import CONFIG, TERMS, Arbiter, ArbiterLeases, LeasedCluster

pytestmark = pytest.mark.asyncio


class Opener(Entity, name="ends.Opener"):
    settings = ShardingSettings(number_of_shards=1, use_lease="postgres")
    opened: ClassVar[list[str]] = []

    @on_start
    def open(self) -> None:
        Opener.opened.append(self.entity_id)

    @command
    def hello(self) -> int:
        return 1


# -- Leases ----------------------------------------------------------------------------------------


def keeping(arbiter: Arbiter) -> tuple[LeaseKeeper, ShardGate, list[Any], asyncio.Future[None]]:
    granted: list[Any] = []
    leases: Any = ArbiterLeases(arbiter, "n1")
    keeper = LeaseKeeper(leases, TERMS, asyncio.get_running_loop().time, "its-check")
    gate = ShardGate(keeper, str, lambda *shard: granted.append(shard), lambda *_: None)
    return keeper, gate, granted, asyncio.ensure_future(keeper.run())


async def test_a_request_that_an_arbiter_has_cancelled_is_made_again() -> None:
    """Its requests share a future, and the time limit of one has cancelled that."""
    arbiter = Arbiter()
    cancelled: Any = asyncio.CancelledError()
    arbiter.fails = cancelled
    keeper, gate, granted, running = keeping(arbiter)
    try:
        await until(lambda: arbiter.checks > 1)
        arbiter.fails = None
        await until(lambda: keeper.reachable)
        arbiter.fails = cancelled
        assert not gate.admits(0, 1)
        await until(lambda: bool(arbiter.asked("acquire")))
        arbiter.fails, arbiter.grants = None, lambda *_: True
        await until(lambda: granted == [(0, 1)])
    finally:
        running.cancel()
        await asyncio.wait([running])
    assert running.cancelled(), "its own end is none of the arbiter's"


class Converts:
    """An arbiter whose client makes an error of its own of a cancellation."""

    async def acquire(self, names: Any) -> Any:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            raise OSError("interrupted") from None

    renew = release = acquire

    async def close(self) -> None: ...


async def test_the_look_for_an_arbiter_ends_with_its_node() -> None:
    leases: Any = Converts()
    keeper = LeaseKeeper(leases, TERMS, asyncio.get_running_loop().time, "check")
    running = asyncio.ensure_future(keeper.run())
    await asyncio.sleep(0.05)
    running.cancel()
    done, _ = await asyncio.wait([running], timeout=3)
    assert done


async def test_an_arbiter_that_raises_at_its_end_ends_no_node(monkeypatch: pytest.MonkeyPatch) -> None:
    async def close(_: object) -> None:
        raise LookupError("closed already")

    monkeypatch.setattr(ArbiterLeases, "close", close)
    keeper, _, _, running = keeping(Arbiter())
    await until(lambda: keeper.reachable)
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()


async def test_an_entity_whose_shard_has_lost_its_lease_meanwhile_does_not_start() -> None:
    Opener.opened.clear()
    arbiter = Arbiter()
    arbiter.grants = lambda *_: True
    config = dataclasses.replace(CONFIG, stop_timeout_seconds=5.0)
    cluster = LeasedCluster([registry.get("ends.Opener")], nodes=1, config=config)
    cluster.arbiter = arbiter
    async with cluster:
        with cluster.in_use():
            assert await Opener.ref("a").hello() == 1
            (node,) = cluster.nodes.values()
            host: Any = node.hosts["ends.Opener"]
            wanted: list[Any] = []
            load, host.loader.want = host.loader.want, wanted.append
            asking = asyncio.ensure_future(Opener.ref("b").hello())
            await until(lambda: bool(wanted))
            shard = host.shards[0]
            arbiter.grants = lambda *_: False
            arbiter.take_away()
            await until(lambda: shard.closed)
            host.loader.want = load
            load(wanted[0])
            await until(lambda: wanted[0].is_gone or host.shards.get(0) is not shard)
            asking.cancel()
    assert Opener.opened == ["a"]


async def test_an_entity_whose_shard_has_left_meanwhile_does_not_start() -> None:
    Opener.opened.clear()
    async with MemoryCluster([registry.get("ends.Opener")], nodes=1) as cluster:
        with cluster.in_use():
            assert await Opener.ref("a").hello() == 1
            (node,) = cluster.nodes.values()
            host: Any = node.hosts["ends.Opener"]
            wanted: list[Any] = []
            load, host.loader.want = host.loader.want, wanted.append
            asking = asyncio.ensure_future(Opener.ref("b", timeout=60).hello())
            await until(lambda: bool(wanted))
            goes_on = asyncio.Event()
            lease, host.lease = host.lease, goes_on.wait
            load(wanted[0])
            for _ in range(10):
                await asyncio.sleep(0)
            host.shard_life.drop(0)
            host.loader.want, host.lease = load, lease
            goes_on.set()
            for _ in range(10):
                await asyncio.sleep(0)
            assert Opener.opened == ["a"]
            asking.cancel()


# -- Long outages, and what raises -----------------------------------------------------------------


async def test_a_follower_outlasts_thousands_of_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "RETRY_MAX_SECONDS", 0.0)
    left = 1100

    async def ask(_: object) -> bytes:
        nonlocal left
        left -= 1
        if left > 0:
            raise Unavailable("no node hosts it", code="no_host")
        return encode(News(1))

    made: Any = Hub(ask, 5)
    assert (await made.question("a.B", "1", Question(-1, 0, 0, 0.0))).last == 1


async def test_a_projection_outlasts_thousands_of_failures() -> None:
    part: Any = SimpleNamespace(_failures=1100)
    back_off: Any = next(
        each._back_off
        for each in vars(worker).values()
        if isinstance(each, type) and hasattr(each, "_back_off")
    )
    assert back_off(part) == worker.RETRY_MAX_SECONDS


async def test_an_extractor_that_raises_fails_the_entity_alone() -> None:
    class Host:
        def start_elsewhere(self, entity: str) -> Any:
            raise InvalidCall(f"{entity} is unknown today")

    made: Any = object.__new__(Remembering)
    made._host = Host()
    found: list[object] = await asyncio.gather(made._started_elsewhere("a"), return_exceptions=True)
    assert isinstance(found[0], InvalidCall)


@pytest.mark.parametrize(("state", "stands"), [("leaving", [False, True]), ("up", [True])])
async def test_a_node_that_resigned_while_it_was_drained_stands_again(state: str, stands: list[bool]) -> None:
    asked: list[bool] = []

    async def nothing() -> None:
        """Resign, or end a term."""

    shell = SimpleNamespace(run=nothing)
    node: Any = SimpleNamespace(
        coordinator=shell, config=SimpleNamespace(candidate=True), state=state,
        lifeline=SimpleNamespace(resign=nothing, set_candidate=asked.append),
    )  # fmt: skip
    terms: Any = CoordinatorTerms(node)
    await terms._run(shell)
    for _ in range(2):
        terms.stand_again()
    assert asked == stands
