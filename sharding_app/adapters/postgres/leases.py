"""`ports.lease.Leases` as rows of `sharding_lease`, over the control connection of the node's
store.

Contract: a lease is free when it has no holder, or when its time is over by the server's clock. The
time of all leases of a node is a column of its row, so one renewal prolongs all that it holds. A
holder whose node has no row any more renews nothing, and its time is cut to a node's TTL: the node
was declared dead, but may live and handle messages for less than that
(`protocol.liveness.node_lease.longest_overlap`). So two nodes never hold a lease's subject,
whatever ended the node's sessions. Each grant has a higher token, and renewals and releases have to
name it: a renewal or a release that is executed late concerns no later grant. A request that is
executed late may take a lease that its node has given back. A renewal finds it, and the node gives
it back. Statements wait inside the server only for a row that is being written (`lock_timeout`).
"""

import contextlib
from collections.abc import Collection, Sequence

from sharding_app.adapters.postgres.store import PostgresStore
from sharding_app.ports.store import StoreUnavailable
from sharding_app.protocol.liveness.shard_lease import LeaseTerms


class PostgresLeases:
    def __init__(
        self, store: PostgresStore, owner: str, terms: LeaseTerms, node_ttl_seconds: float = 3.0
    ) -> None:
        self._store = store
        self._owner = owner
        self._ttl = float(terms.ttl_seconds)
        self._node_ttl = float(node_ttl_seconds)
        self._forgotten_after = float(terms.ttl_seconds + terms.answer_seconds)
        "A request that is older has its answer, or gets none: what it took is known, or never is."
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
            "known": list(self._tokens),
            "owner": self._owner,
            "ttl": self._ttl,
            "forgotten_after": self._forgotten_after,
        }
        found: dict[str, int] = dict(await self._store.rows("renew_leases", params))
        forgotten = {name: token for name, token in found.items() if name not in self._tokens}
        if forgotten:
            with contextlib.suppress(StoreUnavailable):  # the next renewal finds them again
                await self._give_back(forgotten)
        return [name for name in known if name in found]

    async def release(self, names: Sequence[str]) -> None:
        unknown = [each for each in names if each not in self._tokens]
        if unknown:  # a request had no answer: this one comes after it, and returns a token
            await self.acquire(unknown)
        held = {each: self._tokens[each] for each in sorted(names) if each in self._tokens}
        await self._give_back(held)
        for name in held:
            del self._tokens[name]

    async def _give_back(self, tokens: dict[str, int]) -> None:
        params = {"names": list(tokens), "tokens": list(tokens.values()), "owner": self._owner}
        await self._store.rows("release_leases", params)

    async def close(self) -> None:
        """Do nothing: the connection is the store's."""
