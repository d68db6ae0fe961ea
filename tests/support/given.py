"""What contract tests start from: a type, members, homes, events."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from sharding_app.ports.deliveries import MessageRow
from sharding_app.ports.journal import EventRow
from sharding_app.ports.lifeline import LifelineSession
from sharding_app.ports.store import ClusterStore
from sharding_app.protocol.liveness.locks import lifeline_keys
from sharding_app.protocol.records import HomeChange, Member, TypeConfig
from tests.contract.factories import World
from tests.support.slack import SLACK

CART = TypeConfig(
    name="shop.Cart",
    kind="event sourced",
    number_of_shards=50,
    extractor="hash",
    hash_version="crc32-1",
    role="",
    store_mode="postgres",
)


def member(incarnation: str, **changes: Any) -> Member:
    fields: dict[str, Any] = {
        "name": f"node-{incarnation}",
        "host": "here",
        "pid": 42,
        "age": 0,
        "state": "up",
    }
    return Member(incarnation=incarnation, **(fields | changes))


def event_row(type_id: int, entity: str, seq: int, **changes: Any) -> EventRow:
    row = EventRow(
        type_id=type_id,
        entity=entity,
        seq=seq,
        shard=0,
        epoch=1,
        name="shop.ItemAdded",
        version=1,
        payload=b'{"sku": "book"}',
        command_id=None,
        command=None,
        reply=None,
    )
    return row._replace(**changes)


def message(type_id: int, name: str, owner: str = "a", *, shard: int = 0, **fields: Any) -> MessageRow:
    row = MessageRow(
        id=name,
        type_id=type_id,
        shard=shard,
        entity=owner,
        epoch=1,
        seq=1,
        position=0,
        target_type=CART.name,
        target="target",
        command="outbid",
        args=b"\x92\x90\x80",
    )
    return row._replace(**fields)


async def with_type(store: ClusterStore, config: TypeConfig = CART) -> int:
    numbers, differing = await store.register_types([config])
    assert not differing
    return numbers[config.name]


async def joined(
    world: World, store: ClusterStore, incarnation: str, **changes: Any
) -> tuple[LifelineSession, ...]:
    """Join a node whose two lifeline locks are held; return its sessions."""
    keys = lifeline_keys(await store.cluster_id(), incarnation)
    await store.join(member(incarnation, **changes), keys)
    sessions = (world.session(incarnation, 0), world.session(incarnation, 1))
    for session, key in zip(sessions, keys, strict=True):
        await session.open()
        assert await session.lock(key)
    return sessions


async def elected(world: World, incarnation: str = "coordinator") -> int:
    session = world.session(incarnation)
    await world.store().join(member(incarnation), (1, 2))
    await session.open()
    term = await session.elect(incarnation)
    assert term is not None
    return term


async def homed(world: World, shards: dict[int, int], home: str = "home", config: TypeConfig = CART) -> int:
    """Give the type's shards homes at these epochs; return the type's number."""
    store = world.store()
    number = await with_type(store, config)
    term = await elected(world)
    await store.decide(
        term, [HomeChange(config.name, shard, 0, epoch, home, "home") for shard, epoch in shards.items()]
    )
    return number


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = 60.0) -> None:
    """Wait for a condition, with a deadline."""
    async with asyncio.timeout(seconds * SLACK):
        while not await condition():  # noqa: ASYNC110 - what is waited for happens in a server
            await asyncio.sleep(0.01)
