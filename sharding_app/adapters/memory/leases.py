"""`ports.lease.Leases` over the virtual server, with the rules of the Postgres lease."""

from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from sharding_app.adapters.memory.connection import Connection
from sharding_app.adapters.memory.lease_row import LeaseRow
from sharding_app.adapters.memory.server import MemoryServer
from sharding_app.core.shard_lease import LeaseTerms

T = TypeVar("T")


class MemoryLeases:
    def __init__(
        self, server: MemoryServer, owner: str, terms: LeaseTerms, node_ttl_seconds: float = 3.0
    ) -> None:
        self._server = server
        self._rows = server.leases
        self._owner = owner
        self._terms = terms
        self._node_ttl = node_ttl_seconds
        self._tokens: dict[str, int] = {}
        self._connection = Connection(server, owner)

    async def acquire(self, names: Sequence[str]) -> Collection[str]:
        tokens = await self._ask(
            "acquire", lambda: {each: self._take(each) for each in names if self._free(each)}
        )
        self._tokens |= tokens
        return list(tokens)

    async def renew(self, names: Sequence[str]) -> Collection[str]:
        return await self._ask("renew", lambda: [each for each in names if self._prolong(each)])

    async def release(self, names: Sequence[str]) -> None:
        unknown = [each for each in names if each not in self._tokens]
        if unknown:
            await self.acquire(unknown)
        held = {each: self._tokens[each] for each in names if each in self._tokens}
        await self._ask("release", lambda: self._give_back(held))
        for name in held:
            del self._tokens[name]

    async def close(self) -> None:
        self._connection.close()

    # -- In the server ---------------------------------------------------------------------------------------------

    def _free(self, name: str) -> bool:
        row = self._rows.setdefault(name, LeaseRow())
        now = self._server.now()
        if row.owner in (None, self._owner) or row.expires_at <= now:
            return True
        if row.owner not in self._server.cluster.members:
            row.expires_at = min(row.expires_at, now + self._node_ttl)
        return False

    def _take(self, name: str) -> int:
        row = self._rows[name]
        row.owner, row.token = self._owner, row.token + 1
        row.expires_at = self._server.now() + self._terms.ttl_seconds
        return row.token

    def _prolong(self, name: str) -> bool:
        row = self._rows.get(name)
        if row is None or row.owner != self._owner or row.token != self._tokens.get(name):
            return False
        if self._owner not in self._server.cluster.members:
            return False
        row.expires_at = self._server.now() + self._terms.ttl_seconds
        return True

    def _give_back(self, tokens: dict[str, int]) -> None:
        for name, token in tokens.items():
            row = self._rows.get(name)
            if row is not None and row.owner == self._owner and row.token == token:
                row.owner = None

    async def _ask(self, kind: str, request: Callable[[], T]) -> T:
        return await self._connection.reach(f"{kind}_leases", request)
