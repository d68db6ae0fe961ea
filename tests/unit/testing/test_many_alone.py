"""Many entities, and lists of ids, with the gateway of the test kit that needs no cluster."""

import asyncio

import pytest

from sharding_app import EntityFailed, Rejected, WrongContext
from sharding_app.entities.gateway import use_gateway
from sharding_app.testing.local import LocalGateway
from tests.unit.entities.cart import Cart


def test_many_are_asked_one_after_the_other() -> None:
    with use_gateway(LocalGateway()):
        answers = Cart.ask_many(["b", "a"]).sync.add("book")
        assert answers == {"b": 1, "a": 1}
        assert [each.entity_id for each in Cart.refs()] == ["a", "b"]
        assert [each.entity_id for each in Cart.refs(prefix="b")] == ["b"]

        async def main() -> None:
            assert await Cart.ask_many(["a", "b"]).add("book") == {"a": 2, "b": 2}
            failed = await Cart.ask_many(["a"]).add("book", 0)
            assert isinstance(failed.errors["a"], (Rejected, EntityFailed))
            assert [each.entity_id async for each in Cart.refs()] == ["a", "b"]

        asyncio.run(main())
        with pytest.raises(WrongContext, match="only in a real cluster"):
            list(Cart.refs(stored=False))
