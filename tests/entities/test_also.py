"""The threads that run a user's own writes: so many and no more, and none waits for a lock for ever."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.contrib.auth.models import Group
from django.db import OperationalError

from sharding_app import bootstrap
from sharding_app.adapters.postgres.journal import PostgresJournal
from sharding_app.together import DjangoTogether
from tests.entities.held_row import held_row

pytestmark = pytest.mark.django_db(transaction=True)


@contextmanager
def together(*, threads: int, lock_timeout_seconds: float) -> Iterator[DjangoTogether]:
    """As a node makes it; here no event stands beside the functions, so the journal itself is never asked."""
    made = DjangoTogether(
        "default",
        PostgresJournal(bootstrap.conninfo("default"), owner="test"),
        owner="test",
        threads=threads,
        lock_timeout_seconds=lock_timeout_seconds,
    )
    try:
        yield made
    finally:
        made.close()


def test_a_function_waits_for_a_lock_so_long_and_no_longer() -> None:
    def write() -> None:
        Group.objects.create(name="rolled back")
        Group.objects.select_for_update().get(name="held")

    with held_row("held") as row, together(threads=1, lock_timeout_seconds=0.2) as run:
        with pytest.raises(OperationalError, match="lock timeout"):
            asyncio.run(run([], [write]))
        assert row.is_held
        assert not Group.objects.filter(name="rolled back").exists()
        asyncio.run(run([], [lambda: Group.objects.create(name="next")]))
    assert set(Group.objects.values_list("name", flat=True)) == {"held", "next"}


def test_the_threads_are_bounded_and_each_has_one_connection() -> None:
    """Two of five go first; the others wait for their turn, and all are done in the end."""
    under_way: set[int] = set()
    full, release = threading.Event(), threading.Event()
    most = 0

    def write(name: str) -> None:
        nonlocal most
        under_way.add(threading.get_ident())
        most = max(most, len(under_way))
        if len(under_way) == 2:
            full.set()
        Group.objects.create(name=name)
        assert release.wait(10)

    async def main(run: DjangoTogether) -> None:
        asked = [
            asyncio.ensure_future(run([], [lambda name=name: write(name)]))  # type: ignore[misc]
            for name in "abcde"
        ]
        assert await asyncio.to_thread(full.wait, 10)
        assert not any(each.done() for each in asked)
        release.set()
        await asyncio.gather(*asked)

    with together(threads=2, lock_timeout_seconds=5) as run:
        asyncio.run(main(run))
        assert len(run._connections) == 2
    assert most == len(under_way) == 2
    assert Group.objects.count() == 5
