"""A lease is given back by its token, however often that has to be asked: one that was granted
since is left alone.
"""

from collections.abc import Mapping
from typing import Any, cast

import pytest

from sharding_app.adapters.postgres.leases import PostgresLeases
from sharding_app.adapters.postgres.store import PostgresStore
from sharding_app.ports.store import StoreUnavailable
from sharding_app.protocol.liveness.shard_lease import LeaseTerms

pytestmark = pytest.mark.asyncio


class Store:
    """Grants every lease with the next token, and answers a release only while it is reachable."""

    def __init__(self) -> None:
        self.reachable = True
        self.granted = 0
        self.released: list[Mapping[str, Any]] = []

    async def rows(self, query: str, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        if query == "acquire_leases":
            self.granted += 1
            return [(name, self.granted) for name in params["names"]]
        assert query == "release_leases"
        self.released.append(params)
        if not self.reachable:
            raise StoreUnavailable("no answer")
        return []


async def test_a_repeated_release_names_the_same_token() -> None:
    store = Store()
    leases = PostgresLeases(cast(PostgresStore, store), "n-1", LeaseTerms())
    await leases.acquire(["a"])
    store.reachable = False
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await leases.release(["a"])
    store.reachable = True
    await leases.release(["a"])
    assert [each["tokens"] for each in store.released] == [[1], [1], [1]]


async def test_what_has_no_token_is_asked_for_first() -> None:
    """A request had no answer: only one that has can say what is given back."""
    store = Store()
    leases = PostgresLeases(cast(PostgresStore, store), "n-1", LeaseTerms())
    await leases.release(["a"])
    assert store.granted == 1
    assert [(each["names"], each["tokens"]) for each in store.released] == [(["a"], [1])]
    await leases.release(["a"])
    assert [each["tokens"] for each in store.released] == [[1], [2]], "each time anew"
