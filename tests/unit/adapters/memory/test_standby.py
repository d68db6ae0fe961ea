"""The virtual server, and what it tells while its synchronous standby is away."""

import asyncio

import pytest

from sharding_app.adapters.memory import MemoryJournal, MemoryServer
from sharding_app.ports.deliveries import MessagesGone, Taking
from tests.support.given import until

pytestmark = pytest.mark.asyncio

TAKING = Taking("m", foreign="b", taker=(1, 0, 1, "a"))


async def test_a_mark_is_told_of_once_the_standby_has_it() -> None:
    """As on PostgreSQL (tests/integration/adapters/postgres/test_synchronous.py)."""
    server = MemoryServer()
    server.cluster.epochs[1, 0] = 1
    server.standby.part()

    async def is_marked() -> bool:
        return "m" in server.messages.marks

    first = asyncio.create_task(MemoryJournal(server).stage([], [], [TAKING]))
    await until(is_marked)
    assert not first.done()
    again = asyncio.create_task(MemoryJournal(server).stage([], [], [TAKING]))
    done, _ = await asyncio.wait([again], timeout=0.05)
    assert not done, "a failover would lose the mark, and the message would take effect again"
    server.standby.join()
    await first
    with pytest.raises(MessagesGone):
        await again
