"""A wait for an event that ends in time."""

import asyncio


async def set_within(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait until the event is set, for `seconds` at most (None: for ever). Whether it was set."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
