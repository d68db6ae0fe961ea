"""`ports.lease.Leases` over the virtual server, with the rules of the Postgres lease."""

import contextlib
from collections.abc import Callable, Collection, Sequence, Set
from typing import TypeVar

from sharding_app.adapters.memory.cluster_writes import node_key
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
        known = frozenset(self._tokens)
        mine, found = await self._ask("renew", lambda: self._renew(names, known))
        forgotten = {name: token for name, token in found.items() if name not in self._tokens}
        if forgotten:
            with contextlib.suppress(StoreUnavailable):  # the next renewal finds them again
                await self._ask("release", lambda: self._release(forgotten))
        return mine

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
        """Take free leases. Whether one is free is read when its row is locked, and an owner's time
        is over for good once its own row is locked. The members are those of the moment when all
        rows of leases are locked.
        """
        late = yield from self._late_owners(names)
        until = self._server.steady() + self._terms.ttl_seconds
        has_row = self._owner in self._server.cluster.members
        taken: list[str] = []
        for name in sorted(names):
            yield Lock(_key(name))
            row = self._rows.get(name, LeaseRow())
            if row.owner in (None, self._owner, *late) or self._is_over(row):
                taken.append(name)
        members = self._server.cluster.members
        cut_to = self._server.steady() + self._node_ttl
        cut = [
            name
            for name in names
            if name not in taken
            and (row := self._rows[name]).owner not in members
            and (row.expires_at is None or row.expires_at > cut_to)
        ]
        yield Pause.COMMIT
        if has_row:
            self._server.cluster.leases_until[self._owner] = until
        for name in taken:
            row = self._rows.setdefault(name, LeaseRow())
            row.owner, row.token, row.expires_at = self._owner, row.token + 1, None if has_row else until
            row.acquired_at = self._server.steady()
        for name in cut:
            self._rows[name].expires_at = cut_to
        return {name: self._rows[name].token for name in taken}

    def _late_owners(self, names: Sequence[str]) -> Steps[list[str]]:
        """Lock our own row, and those of owners whose time is over: they cannot prolong it."""
        cluster = self._server.cluster
        owners = {row.owner for name in names if (row := self._rows.get(name)) is not None}
        seen = [each for each in sorted(cluster.members) if each == self._owner or self._is_late(each)]
        late = []
        for each in seen:
            if each == self._owner or each in owners:
                yield Lock(node_key(each))
                if each != self._owner and self._is_late(each):
                    late.append(each)
        return late

    def _is_late(self, owner: str) -> bool:
        until = self._server.cluster.leases_until.get(owner)
        return until is not None and until <= self._server.steady()

    def _is_over(self, row: LeaseRow) -> bool:
        return row.expires_at is not None and row.expires_at <= self._server.steady()

    def _renew(self, names: Sequence[str], known: Set[str]) -> Steps[tuple[list[str], dict[str, int]]]:
        """Prolong the owner's time. Return its leases among these names, and those that it does not
        know, with their tokens.
        """
        if self._owner not in self._server.cluster.members:
            return [], {}
        yield Lock(node_key(self._owner))
        if self._owner not in self._server.cluster.members:
            return [], {}
        now = self._server.steady()
        mine = [
            name
            for name in names
            if name in self._tokens
            and self._is_ours(name, self._tokens[name])
            and self._rows[name].expires_at is None
        ]
        before = now - self._terms.ttl_seconds - self._terms.answer_seconds
        forgotten = {
            name: row.token
            for name, row in self._rows.items()
            if row.owner == self._owner and row.acquired_at < before and name not in known
        }
        yield Pause.COMMIT
        self._server.cluster.leases_until[self._owner] = now + self._terms.ttl_seconds
        return mine, forgotten

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
