"""`python -m tests.acceptance.load`: the load of `sharding_app.torture`, on the entities of this
app.
"""

import asyncio
import sys

import django

from sharding_app.torture.load import parse, run_load

if __name__ == "__main__":
    django.setup()
    from sharding_app import SingletonProxy
    from tests.acceptance.app.entities import TICKER, Account, Register

    proxy = SingletonProxy(TICKER, role=Register.settings.role, buffer_size=10)
    asyncio.run(run_load(parse(sys.argv[1:]), Register, proxy, Account))
