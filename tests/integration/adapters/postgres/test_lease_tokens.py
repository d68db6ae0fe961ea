"""A lease is given back by its token, however often that has to be asked: one that was granted
since is left alone.
"""

from collections.abc import Awaitable, Callable, Mapping
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
        self.found: list[tuple[str, int]] = []
        "Answered to each renewal."
        self.meanwhile: Callable[[], Awaitable[object]] | None = None
        "Done while a renewal is under way."

    async def rows(self, query: str, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        if query == "acquire_leases":
            self.granted += 1
            return [(name, self.granted) for name in params["names"]]
        if query == "renew_leases":
            if self.meanwhile is not None:
                await self.meanwhile()
            return list(self.found)
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


async def test_what_a_renewal_finds_and_its_node_does_not_know_is_given_back_by_its_token() -> None:
    store = Store()
    leases = PostgresLeases(cast(PostgresStore, store), "n-1", LeaseTerms())
    await leases.acquire(["a"])
    store.found = [("a", 1), ("b", 7)]
    assert list(await leases.renew(["a"])) == ["a"]
    assert [(each["names"], each["tokens"]) for each in store.released] == [(["b"], [7])]
    store.reachable = False
    assert list(await leases.renew(["a"])) == ["a"], "the next renewal tries again"


async def test_what_was_granted_while_a_renewal_was_under_way_is_kept() -> None:
    """The renewal may be answered, or executed, long after it was sent."""
    store = Store()
    leases = PostgresLeases(cast(PostgresStore, store), "n-1", LeaseTerms())
    await leases.acquire(["a"])
    store.found = [("a", 1), ("b", 2)]
    store.meanwhile = lambda: leases.acquire(["b"])
    assert list(await leases.renew(["a"])) == ["a"]
    assert store.released == []
