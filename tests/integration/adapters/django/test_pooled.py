"""Django's own pool of connections (`OPTIONS["pool"]`), which handlers and projections share."""

import asyncio
import concurrent.futures
from collections.abc import Iterator
from typing import Any, cast

import pytest
from django.contrib.auth.models import Group
from django.db import connection, connections

from sharding_app.adapters.django.projecting import DjangoPart
from tests.integration.adapters.django.projected import Payments, Writer, log, part
from tests.integration.adapters.django.test_projecting import writer as journal_writer
from tests.support.live import until
from tests.support.slack import SLACK

pytestmark = pytest.mark.django_db(transaction=True)
writer = journal_writer

MOST = 4
POOL = {"min_size": 1, "max_size": MOST, "timeout": 5 * SLACK}


@pytest.fixture
def pooled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    options = {**connection.settings_dict["OPTIONS"], "pool": POOL}
    connection.close()
    with monkeypatch.context() as patched:
        patched.setitem(connections.settings["default"], "OPTIONS", options)
        patched.setitem(connection.settings_dict, "OPTIONS", options)
        yield
        connection.close()
        cast(Any, connection).close_pool()


def count() -> int:
    """Ask in a thread of its own, as a handler does."""
    try:
        return Group.objects.count()
    finally:
        connections.close_all()


async def turns(parts: list[DjangoPart]) -> list[Any]:
    return await asyncio.gather(
        *(each.turn(number, len(parts), careful=False) for number, each in enumerate(parts))
    )


async def end(parts: list[DjangoPart]) -> None:
    for each in parts:
        await each.close()
        await asyncio.to_thread(each.thread.shutdown)


def test_parts_at_rest_leave_the_pool_to_handlers(writer: Writer, pooled: None) -> None:
    """There are as many of them as the pool has connections."""
    parts = [part(Payments) for _ in range(MOST)]
    try:
        asyncio.run(turns(parts))
        with concurrent.futures.ThreadPoolExecutor(1) as one:
            assert one.submit(count).result() == 0
        writer.append("a", 1)
        writer.commit()

        def arrived() -> bool:
            # A turn does nothing if another part divides or joins its positions at that moment.
            asyncio.run(turns(parts))
            return bool(log())

        until(arrived, 60.0, "a turn has come to the event")
        assert log() == [("a", 1, 1)]
    finally:
        asyncio.run(end(parts))
