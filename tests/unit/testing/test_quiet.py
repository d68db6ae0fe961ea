"""A test in which all goes well logs nothing."""

import logging

import pytest

from sharding_app.testing import MemoryCluster
from tests.unit.runtime.one_of_each import Cart

pytestmark = pytest.mark.asyncio


async def test_nodes_that_are_killed_report_no_trouble(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    for nodes in (1, 3):
        async with MemoryCluster([Cart], nodes=nodes) as cluster:
            with cluster.in_use():
                for each in "abcdefgh":
                    await Cart.ref(each).add("book")
                await cluster.kill_node(cluster.home_of(Cart, "a"))
                await cluster.add_node()
                assert await Cart.ref("a").add("book") == 2
    assert [each.getMessage() for each in caplog.records] == []
