"""`python -m tests.acceptance.follower TYPE ENTITY [--async] [--query NAME]`: a process that
follows an entity, as a management command of a site would.

Each event is a line on its standard output: `found`, and as JSON its number, its fields and its
time. With `--query` it is a value of that query.
"""

import argparse
import asyncio
import json
from typing import Any

import django
import msgspec


def main() -> None:
    django.setup()
    from sharding_app import Happened
    from sharding_app.entities.registry import registry

    parser = argparse.ArgumentParser()
    parser.add_argument("type")
    parser.add_argument("entity")
    parser.add_argument("--async", action="store_true", dest="awaits")
    parser.add_argument("--query")
    options = parser.parse_args()
    ref: Any = registry.get(options.type).ref_class(options.entity)

    def show(found: Any) -> None:
        if isinstance(found, Happened):
            found = [found.number, msgspec.to_builtins(found.event), found.at.isoformat()]
        print("found", json.dumps(found), flush=True)

    async def follow() -> None:
        async for each in getattr(ref, options.query).changes() if options.query else ref.events():
            show(each)

    print("begins", flush=True)
    if options.awaits:
        asyncio.run(follow())
    for each in getattr(ref.sync, options.query).changes() if options.query else ref.sync.events():
        show(each)


if __name__ == "__main__":
    main()
