"""Commands for the browser's cluster: `python -m tests.browser.traffic 60` asks 60 a second,
until it is ended; `… traffic 0 8` asks as much as the cluster takes for eight seconds, and prints
how many that were in a second.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time

import django

CALLERS = 256
CARTS = 2000


async def steady(rate: int) -> None:
    """A few customers buy more than others, and a calibration fails now and then."""
    from project.shop.entities import Cart
    from sharding_app import ShardingError
    from tests.browser.app.entities import Station

    chance = random.Random(7)
    while True:
        began = time.monotonic()
        number = int(chance.paretovariate(0.7)) % CARTS
        asked = [Cart.ref(f"customer-{(number + each) % CARTS:05}").add("book") for each in range(rate // 10)]
        asked.append(Station.ref(f"place-{chance.randrange(30)}").measure(20.0))
        if chance.random() < 0.02:
            asked.append(Station.ref("bergen").calibrate())
        for error in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(error, BaseException) and not isinstance(error, ShardingError):
                raise error
        await asyncio.sleep(max(0.0, 0.1 - (time.monotonic() - began)))


async def full(seconds: float) -> float:
    """Callers that each ask again once they have their answer; return the answers of a second."""
    from project.shop.entities import Cart

    done = 0
    ends = time.monotonic() + seconds

    async def caller(number: int) -> None:
        nonlocal done
        chance = random.Random(number)
        while time.monotonic() < ends:
            await Cart.ref(f"customer-{chance.randrange(CARTS):05}").add("book")
            done += 1

    await asyncio.gather(*map(caller, range(CALLERS)))
    return done / seconds


def main() -> None:
    django.setup()
    rate, *more = sys.argv[1:]
    if more:
        asyncio.run(full(1.0))
        print(f"{asyncio.run(full(float(more[0]))):.0f}")
    else:
        asyncio.run(steady(int(rate)))


if __name__ == "__main__":
    main()
