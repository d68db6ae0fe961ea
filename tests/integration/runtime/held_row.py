"""A row of the user's that another transaction holds, on a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from django.contrib.auth.models import Group
from django.db import connections, transaction

from tests.support.slack import SLACK

LONGEST_SECONDS = 20.0 * SLACK


class HeldRow:
    def __init__(self, name: str, pool: ThreadPoolExecutor) -> None:
        self._name = name
        self._locked = threading.Event()
        self._release = threading.Event()
        self._holding: Future[None] = pool.submit(self._hold)

    def _hold(self) -> None:
        try:
            with transaction.atomic():
                Group.objects.select_for_update().get(name=self._name)
                self._locked.set()
                self._release.wait(LONGEST_SECONDS)
        finally:
            connections.close_all()

    @property
    def is_held(self) -> bool:
        return self._locked.is_set() and not self._holding.done()

    def hold_for(self, seconds: float) -> None:
        """Hold it for that time from now, whatever waits for it."""
        self._release.wait(seconds)
        assert self.is_held

    def let_go(self) -> None:
        """And wait until its transaction has ended. Raises what went wrong in it."""
        self._release.set()
        self._holding.result(30 * SLACK)


@contextmanager
def held_row(name: str) -> Iterator[HeldRow]:
    """Make a group of that name, and hold its row until the block ends, if it is not let go
    before.
    """
    Group.objects.create(name=name)
    with ThreadPoolExecutor(1) as pool:
        row = HeldRow(name, pool)
        try:
            assert row._locked.wait(10 * SLACK)
            yield row
        finally:
            row.let_go()
