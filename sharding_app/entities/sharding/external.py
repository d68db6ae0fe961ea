"""`ExternalAllocation`: the application assigns shards to node names through `client(type)`.

A location may name a node that has not joined yet: the shard moves there when it does. Locations
are kept in the database until changed. A running shard moves within a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sharding_app.entities import gateway
from sharding_app.entities.registry import registry
from sharding_app.entities.sharding.queries import GetShardLocations, Question, UpdateShardLocations
from sharding_app.errors import InvalidCall
from sharding_app.protocol.allocation import external


class ExternalAllocation(external.ExternalAllocation):
    """``settings = ShardingSettings(allocation=ExternalAllocation())``; a shard without a location
    goes to the node that asks for it."""

    @staticmethod
    def client(entity_type: str | type[Any], *, timeout: float = 5.0) -> LocationClient:
        """Return the client that changes and reads the locations of one type, from any process."""
        return LocationClient(entity_type if isinstance(entity_type, str) else _name_of(entity_type), timeout)


class LocationClient:
    """``await client.update_location(7, "node-a")``; ``client.sync`` does the same without a
    running loop.
    """

    def __init__(self, type_name: str, timeout: float) -> None:
        self.type_name = type_name
        self.timeout = timeout

    async def update_location(self, shard: int, node_name: str) -> None:
        """Assign one shard to the node with that name."""
        await self.update_locations({shard: node_name})

    async def update_locations(self, locations: Mapping[int, str]) -> None:
        """Assign many shards; all assignments take effect, or none."""
        await self._ask(_update(locations))

    async def locations(self) -> dict[int, str]:
        """Return the locations; empty if the cluster does not know the type yet."""
        found: Any = await self._ask(GetShardLocations())
        return dict(found)

    @property
    def sync(self) -> SyncLocationClient:
        return SyncLocationClient(self)

    async def _ask(self, question: Question) -> object:
        return await gateway.inspector().inspect(self.type_name, question, self.timeout)


class SyncLocationClient:
    """`LocationClient` for sync views, tasks and the shell."""

    def __init__(self, client: LocationClient) -> None:
        self._client = client

    def update_location(self, shard: int, node_name: str) -> None:
        self.update_locations({shard: node_name})

    def update_locations(self, locations: Mapping[int, str]) -> None:
        self._ask(_update(locations))

    def locations(self) -> dict[int, str]:
        found: Any = self._ask(GetShardLocations())
        return dict(found)

    def _ask(self, question: Question) -> object:
        client = self._client
        return gateway.inspector().inspect_sync(client.type_name, question, client.timeout)


def _update(locations: Mapping[int, str]) -> UpdateShardLocations:
    given: Mapping[Any, Any] = locations
    for shard, name in given.items():
        if type(shard) is not int or shard < 0 or not isinstance(name, str) or not name:
            raise InvalidCall(f"a location must be a shard number and a node name, not {shard!r}: {name!r}")
    return UpdateShardLocations(dict(locations))


def _name_of(entity_class: type[Any]) -> str:
    for name, known in registry.all().items():
        if known.cls is entity_class:
            return name
    raise InvalidCall(f"{entity_class!r} is not an entity class: pass the name of a type, or its class")
