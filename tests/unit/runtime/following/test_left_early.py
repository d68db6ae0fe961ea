"""Followers that are left while the loop of the cluster has other work, and entities of which
nothing is heard.
"""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from sharding_app import Unavailable
from sharding_app.client import following
from sharding_app.client.following import Hub
from sharding_app.client.portal import Portal
from sharding_app.protocol.call import Call
from sharding_app.protocol.following import News, encode
from tests.support.slack import SLACK
from tests.unit.runtime.waiting import until

pytestmark = pytest.mark.asyncio


async def nothing_new(call: Call) -> bytes:
    await asyncio.sleep(0.05)
    return encode(News(1))


@pytest.fixture
def portal() -> Iterator[Portal]:
    """A portal to a loop of another thread, whose homes have nothing to tell."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    made = Portal(loop, 5.0, followed=50)
    made.following.hub._ask = nothing_new
    yield made

    async def close() -> None:
        made.following.hub.close("the test ends")

    asyncio.run_coroutine_threadsafe(close(), loop).result(20 * SLACK)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(20 * SLACK)
    loop.close()


async def test_a_follower_that_is_left_before_it_has_begun_follows_nothing(portal: Portal) -> None:
    """Its job was cancelled, and begins in the other loop nevertheless."""
    held = threading.Event()
    for number in range(10):
        held.clear()
        portal.loop.call_soon_threadsafe(held.wait, 20)
        follower = portal.following.follow("shop.Auction", str(number))
        moved = asyncio.ensure_future(follower.moved(-1))
        await asyncio.sleep(0)
        moved.cancel()
        await asyncio.wait([moved])
        follower.close()
        held.set()

    async def look() -> int:
        await asyncio.sleep(0)
        return len(portal.following.hub.feeds)

    for _ in range(5):
        asked = asyncio.run_coroutine_threadsafe(look(), portal.loop)
        assert await asyncio.wrap_future(asked) == 0


async def test_an_entity_is_silent_once_its_home_has_not_answered_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(following, "SILENT_SECONDS", 0.0)
    is_away = True

    async def ask(call: Call) -> bytes:
        if is_away:
            raise Unavailable("no node hosts it", code="no_host")
        return await nothing_new(call)

    hub = Hub(ask, 5)
    assert not hub.is_silent("shop.Auction", "1"), "it is not followed"
    subscription = hub.subscribe("shop.Auction", "1")
    moved = asyncio.ensure_future(subscription.moved(-1))
    await until(lambda: hub.is_silent("shop.Auction", "1"))
    is_away = False
    assert await moved == 1
    assert not hub.is_silent("shop.Auction", "1")
    subscription.close()
    hub.close("the test ends")
