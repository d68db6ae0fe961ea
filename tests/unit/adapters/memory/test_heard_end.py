"""What the virtual server does with a session that has ended, when its client has heard of that."""

from collections import Counter

import pytest

from sharding_app.adapters.memory import MemoryLifelineSession, MemoryServer, Plan
from sharding_app.ports.lifeline import SessionLost
from tests.support.given import until

pytestmark = pytest.mark.asyncio


class Asked:
    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()

    def plan(self, client: str, kind: str) -> Plan | None:
        self.kinds[kind] += 1
        return None


async def test_after_the_end_was_heard_a_ping_fails_without_a_way_to_the_server() -> None:
    """PostgreSQL's client has closed its end by then: however slow the way is, it does not wait."""
    faults = Asked()
    server, heard = MemoryServer(faults=faults), Counter[str]()
    session = MemoryLifelineSession(server)
    backend = await session.open()
    session.watch(lambda: heard.update(["end"]))
    server.sessions.end_backends([backend])

    async def was_heard() -> bool:
        return bool(heard)

    await until(was_heard)
    with pytest.raises(SessionLost):
        await session.ping()
    assert faults.kinds["ping"] == 0
