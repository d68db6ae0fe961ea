"""A whole test on a loop of its own whose time runs as quickly as it can."""

import asyncio
from collections.abc import Awaitable

from tests.support.steady_loop import SteadyLoop


def hurry(main: Awaitable[None]) -> None:
    loop = SteadyLoop()
    try:
        loop.run_until_complete(loop.hurry(main))
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        asyncio.set_event_loop(None)
        loop.close()
