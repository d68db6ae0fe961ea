"""Each way to ask waits as long as it is told to, else as long as the type's settings say."""

from collections.abc import Callable

import pytest

from sharding_app import ClusterSharding, Entity, ShardingSettings, StartEntity, query
from sharding_app.entities.gateway import use_gateway
from sharding_app.protocol.builtin_commands import START
from sharding_app.protocol.call import Call
from sharding_app.testing.local import LocalGateway


class Slow(Entity, name="tests.ask_timeout.Slow"):
    settings = ShardingSettings(ask_timeout_seconds=0.3)

    @query
    def total(self) -> int:
        return 1


class Plain(Entity, name="tests.ask_timeout.Plain"):
    @query
    def total(self) -> int:
        return 1


class Parcel(Entity, name="tests.ask_timeout.Parcel"):
    def receive(self, message: object) -> object:
        return 1


class Recorder(LocalGateway):
    """Notes how long each call waits."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float | None] = []

    async def ask(self, call: Call) -> bytes:
        self.seconds.append(call.timeout)
        return b"" if call.command == START else await super().ask(call)


def _region(seconds: float | None) -> None:
    settings = ShardingSettings(ask_timeout_seconds=0.3, number_of_shards=1)
    region = ClusterSharding.start("parcels", entity=Parcel, settings=settings, extract_entity_id=str)
    region.sync.ask(StartEntity("a"), timeout=seconds)


@pytest.mark.parametrize(
    "ask",
    [
        lambda seconds: Slow.ref("a", timeout=seconds).sync.total(),
        lambda seconds: Slow.ref("a", timeout=seconds).sync.exists(),
        lambda seconds: Slow.ask_many(["a"], timeout=seconds).sync.total(),
        _region,
    ],
    ids=["ref", "exists", "ask_many", "region"],
)
def test_the_types_time_counts_where_the_call_says_none(ask: Callable[[float | None], object]) -> None:
    with use_gateway(Recorder()) as carrier:
        ask(None)
        ask(2)
    assert carrier.seconds == [0.3, 2]


@pytest.mark.asyncio
async def test_the_processes_time_counts_where_the_type_says_none_either() -> None:
    with use_gateway(Recorder()) as carrier:
        await Slow.ref("a").total()
        await Plain.ref("a").total()
    assert carrier.seconds == [0.3, None]
