"""`ports.lease.Leases` as rows of `sharding_lease`, over the control connection of the node's store.

Contract: a lease is free when nobody has it, or when its time is over by the server's clock. A holder whose node has no row
any more renews nothing, and its time is cut to a node's TTL: it was taken for dead, and may live, and handle for less than
that (`core.lease.longest_overlap`). So two never hold what a lease is for, whatever ended the node's sessions. Each grant has a higher token, and what is renewed or given back has to name it: a statement that arrives
late changes nothing. Nothing waits inside the server but for a row that is being written (`lock_timeout`).
"""

from collections.abc import Collection, Sequence

from sharding_app.adapters.postgres.store import PostgresStore
from sharding_app.core.shard_lease import LeaseTerms


class PostgresLeases:
    def __init__(
        self, store: PostgresStore, owner: str, terms: LeaseTerms, node_ttl_seconds: float = 3.0
    ) -> None:
        self._store = store
        self._owner = owner
        self._ttl = float(terms.ttl_seconds)
        self._node_ttl = float(node_ttl_seconds)
        self._tokens: dict[str, int] = {}

    async def acquire(self, names: Sequence[str]) -> Collection[str]:
        params = {
            "names": sorted(names),
            "owner": self._owner,
            "ttl": self._ttl,
            "node_ttl": self._node_ttl,
        }
        tokens: dict[str, int] = dict(await self._store.rows("acquire_leases", params))
        self._tokens |= tokens
        return list(tokens)

    async def renew(self, names: Sequence[str]) -> Collection[str]:
        known = sorted(each for each in names if each in self._tokens)
        params = {
            "names": known,
            "tokens": [self._tokens[each] for each in known],
            "owner": self._owner,
            "ttl": self._ttl,
        }
        return [name for (name,) in await self._store.rows("renew_leases", params)]

    async def release(self, names: Sequence[str]) -> None:
        unknown = [each for each in names if each not in self._tokens]
        if unknown:  # a request had no answer: whatever it did, this one has a token, and comes after it
            await self.acquire(unknown)
        held = {each: self._tokens[each] for each in sorted(names) if each in self._tokens}
        params = {"names": list(held), "tokens": list(held.values()), "owner": self._owner}
        await self._store.rows("release_leases", params)
        for name in held:
            del self._tokens[name]

    async def close(self) -> None:
        """The connection is the store's."""
