"""Time and conditions for the tests of this folder."""

import asyncio
from collections.abc import Callable

from sharding_app.testing.clock import TravelLoop


async def travel(seconds: float) -> None:
    """Let time pass on the test's loop."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, TravelLoop)
    await loop.travel(seconds)


async def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Let time pass until that is so."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not condition():
        assert loop.time() < deadline, f"it did not happen within {seconds:g} s"
        await travel(0.01)
