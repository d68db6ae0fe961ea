"""The lifeline of a virtual node, on a second loop of its process: in a real one it has a thread.

The first loop may be blocked, as by a user's handler that computes for seconds, and the lease is
renewed all the same. All else is the real shell: what crosses between the two, in which order, and
how it begins and ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from sharding_app.runtime.base.interfaces import LifelineCallbacks
from sharding_app.runtime.liveness.thread import LifelineThread
from sharding_app.testing.simulation.loop import Process, SimLoop


class LifelineBeside(LifelineThread):
    def __init__(self, loop: SimLoop, *args: Any) -> None:
        super().__init__(*args)
        self._beside = loop
        self._life: asyncio.Task[None] | None = None

    def _begin(self, told: LifelineCallbacks) -> None:
        self._life = self._beside.create_task(self._live(told), name="lifeline")
        self._life.add_done_callback(_failed)

    def _goes_on(self) -> bool:
        return self._life is not None and not self._life.done()


def _failed(life: asyncio.Task[None]) -> None:
    """Report the error of a lifeline that ends by itself to the world: it is our mistake."""
    if not life.cancelled():
        life.result()


class VirtualHeart:
    """Beats while the first loop of a process can turn."""

    def __init__(self, process: Process, given_up: Callable[[], None]) -> None:
        self._process = process
        self._given_up = given_up

    @property
    def beat(self) -> float:
        return self._process.awake

    def report_stall(self, seconds: float) -> None:
        self._given_up()
