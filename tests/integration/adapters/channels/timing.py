"""How soon something heals: what a busy machine adds is left out by trying again."""

import time
from collections.abc import Awaitable, Callable

from tests.support.slack import SLACK

TRIES = round(4 * SLACK)


async def heals_within(
    seconds: float, fail: Callable[[], Awaitable[None]], heal: Callable[[], Awaitable[None]]
) -> bool:
    """Whether it healed so soon, once of a few times: one that is slow by itself never does."""
    for _ in range(TRIES):
        await fail()
        began = time.monotonic()
        await heal()
        if time.monotonic() - began < seconds:
            return True
    return False
