"""Other processes, out of their rows: where they listen, and which of them hear.

Read only when a connection is to be made, or when a node has heard no other for a while.
"""

import asyncio
from typing import Protocol

from sharding_app.adapters.direct.addresses import Address, parse_all
from sharding_app.ports.store import ClusterStore
from sharding_app.protocol.direct.company import Others, others_of
from sharding_app.protocol.ids import has_no_row
from sharding_app.protocol.records import Member

FRESH_SECONDS = 0.05
"""Rows are not read again within this time: after a failure many connections are made at once."""


class Directory(Protocol):
    async def find(self, channel: str) -> list[Address]:
        """Return the addresses of the process with that channel, best first. Empty: no row has any.

        Raises StoreUnavailable.
        """
        ...

    async def others(self, channel: str) -> Others:
        """Return the other nodes of the one with that channel. Raises StoreUnavailable."""
        ...


class RowDirectory:
    """Reads all rows in one statement. A node that joined since is found by the next one."""

    def __init__(self, store: ClusterStore) -> None:
        self._store = store
        self._members: dict[str, Member] = {}
        self._read_at = float("-inf")
        self._reading = asyncio.Lock()

    async def find(self, channel: str) -> list[Address]:
        incarnation = channel.rpartition(".")[2]
        if has_no_row(incarnation):
            return []
        member = (await self._read()).get(incarnation)
        return [] if member is None else parse_all(member.addresses)

    async def others(self, channel: str) -> Others:
        members = await self._read()
        return others_of(members.values(), channel.rpartition(".")[2])

    async def _read(self) -> dict[str, Member]:
        async with self._reading:
            if asyncio.get_running_loop().time() - self._read_at >= FRESH_SECONDS:
                _, members = await self._store.members()
                self._members = {each.incarnation: each for each in members}
                self._read_at = asyncio.get_running_loop().time()
        return self._members
