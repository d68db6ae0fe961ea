"""A command that is sent again after its node died, and does not begin at the next one: it is not
called unstored.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sharding_app import ShardingError
from sharding_app.adapters.memory.journal_rows import Committed
from sharding_app.runtime.base.config import NodeConfig
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.execution.test_in_transaction import Slow
from tests.unit.runtime.one_of_each import Cart
from tests.unit.runtime.waiting import until

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[MemoryCluster]:
    async with MemoryCluster([Cart], nodes=2, config=NodeConfig(mailbox_size=1)) as made:
        with made.in_use():
            yield made


async def stored_and_orphaned(cluster: MemoryCluster) -> "asyncio.Future[int]":
    """Its event is in the journal, and its home dies before it can say so."""
    assert cluster.server.faults is not None
    assert await Cart.ref("a").add("book") == 1
    slow = Slow(cluster.server.faults)
    cluster.server.faults = slow
    slow.answer_after = 60.0
    asked = asyncio.ensure_future(Cart.ref("a", timeout=30).add("book"))
    await until(lambda: len(cluster.events(Cart, "a")) == 2)
    slow.answer_after = None
    return asked


async def test_its_entity_cannot_be_recovered_at_the_next_home(cluster: MemoryCluster) -> None:
    asked = await stored_and_orphaned(cluster)
    (rows,) = cluster.server.journal.events.values()
    rows[3] = Committed(rows[2].row._replace(seq=3, name="vanished"), rows[2].at)
    await cluster.kill_node(cluster.home_of(Cart, "a"))
    with pytest.raises(ShardingError, match="vanished") as told:
        await asked
    assert (told.value.code, told.value.stored) == ("fate_unknown", "unknown")
    with pytest.raises(ShardingError, match="vanished") as told:
        await Cart.ref("a").add("book")
    assert told.value.stored == "nothing", "a first attempt knows that it was not run"


async def test_the_next_home_knows_no_such_command(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older release of the application, in the middle of a deployment."""
    asked = await stored_and_orphaned(cluster)
    home = cluster.home_of(Cart, "a")
    (heir,) = (node for name, node in cluster.nodes.items() if name != home)
    monkeypatch.delitem(heir.hosts["entities.Cart"].execution.commands, "add")
    monkeypatch.delitem(heir.hosts["entities.Cart"].type.commands, "add")
    await cluster.kill_node(home)
    with pytest.raises(ShardingError, match="has no command 'add'") as told:
        await asked
    assert told.value.stored == "unknown"
