"""`ports.lease.Leases` over the virtual server, with the rules of the Postgres lease."""

from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from sharding_app.adapters.memory.connection import Connection
from sharding_app.adapters.memory.lease_row import LeaseRow
from sharding_app.adapters.memory.locks import Key, Lock
from sharding_app.adapters.memory.server import MemoryServer
from sharding_app.adapters.memory.sessions import ConnectionLost, ServerError
from sharding_app.adapters.memory.steps import Pause, Steps
from sharding_app.ports.store import StoreUnavailable
from sharding_app.protocol.liveness.shard_lease import LeaseTerms

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
        tokens = await self._ask("acquire", lambda: self._acquire(names))
        self._tokens |= tokens
        return list(tokens)

    async def renew(self, names: Sequence[str]) -> Collection[str]:
        return await self._ask("renew", lambda: self._renew(names))

    async def release(self, names: Sequence[str]) -> None:
        unknown = [each for each in names if each not in self._tokens]
        if unknown:
            await self.acquire(unknown)
        held = {each: self._tokens[each] for each in names if each in self._tokens}
        await self._ask("release", lambda: self._release(held))
        for name in held:
            del self._tokens[name]

    async def close(self) -> None:
        self._connection.close()

    # -- In the server -----------------------------------------------------------------------------

    def _acquire(self, names: Sequence[str]) -> Steps[dict[str, int]]:
        """Take free leases. Whether one is free is read when its row is locked; the members, when
        the statement begins.
        """
        members = frozenset(self._server.cluster.members)
        taken: dict[str, float] = {}
        cut: dict[str, float] = {}
        for name in sorted(names):
            yield Lock(_key(name))
            now = self._server.steady()
            row = self._rows.get(name, LeaseRow())
            if self._is_free(row, now):
                taken[name] = now + self._terms.ttl_seconds
            elif row.owner not in members:
                cut[name] = min(row.expires_at, now + self._node_ttl)
        yield Pause.COMMIT
        for name, until in taken.items():
            row = self._rows.setdefault(name, LeaseRow())
            row.owner, row.token, row.expires_at = self._owner, row.token + 1, until
        for name, until in cut.items():
            self._rows[name].expires_at = until
        return {name: self._rows[name].token for name in taken}

    def _is_free(self, row: LeaseRow, now: float) -> bool:
        return row.owner in (None, self._owner) or row.expires_at <= now

    def _renew(self, names: Sequence[str]) -> Steps[list[str]]:
        if self._owner not in self._server.cluster.members:
            return []
        mine = yield from self._hold({each: self._tokens[each] for each in names if each in self._tokens})
        until = self._server.steady() + self._terms.ttl_seconds
        yield Pause.COMMIT
        for name in mine:
            self._rows[name].expires_at = until
        return mine

    def _release(self, tokens: dict[str, int]) -> Steps[None]:
        mine = yield from self._hold(tokens)
        yield Pause.COMMIT
        for name in mine:
            self._rows[name].owner = None

    def _hold(self, tokens: dict[str, int]) -> Steps[list[str]]:
        """Lock the leases that are still ours by their tokens, and return those that are still ours
        then.
        """
        for name in sorted(tokens):
            if self._is_ours(name, tokens[name]):
                yield Lock(_key(name))
        return [name for name in sorted(tokens) if self._is_ours(name, tokens[name])]

    def _is_ours(self, name: str, token: int) -> bool:
        row = self._rows.get(name)
        return row is not None and row.owner == self._owner and row.token == token

    async def _ask(self, kind: str, request: Callable[[], Steps[T]]) -> T:
        try:
            return await self._connection.reach(f"{kind}_leases", request)
        except (ConnectionLost, ServerError) as error:
            raise StoreUnavailable(str(error), answered=isinstance(error, ServerError)) from error


def _key(name: str) -> Key:
    return "lease", name
