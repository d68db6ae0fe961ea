"""The worker of one part of a projection: it takes turns while there is something to do, then waits
until a commit wakes it or a slow poll is due.

A worker takes the turns of its part in each journal beside each other: one that is down stops its
own only.

Contract: a lost wake-up costs one poll, never an event. A handler that fails has its turn taken
again with care, event by event, so that others go on. Whatever cannot be reached is tried again,
ever more slowly. Two workers of one part, for a moment after a partition, take turns one after the
other: the positions' rows see to that.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, NamedTuple

from sharding_app.entities.base import Worker
from sharding_app.entities.handlers import command
from sharding_app.entities.projections import ProjectionType
from sharding_app.entities.sharding.workers import ShardedDaemonProcess
from sharding_app.errors import ProjectionError
from sharding_app.ports.projections import HandlerFailed, NotReady, Part, Refused
from sharding_app.protocol.allocation.workers import WORKERS
from sharding_app.protocol.back_off import doubled
from sharding_app.protocol.journals import CLUSTERS_OWN, PROJECTION_WORKERS

logger = logging.getLogger("sharding.projection")

POLL_SECONDS = 2.0
"""Between two looks of a worker that no commit has woken."""
TIDY_SECONDS = 10.0
CAREFUL_TURNS = 20
"""Turns after a failure in which events are handled one by one."""
RETRY_SECONDS = 0.2
RETRY_MAX_SECONDS = 5.0
REFUSED_SECONDS = 10.0
"""Pause of a projection that an operator has to set right."""

MakePart = Callable[[ProjectionType, str], Part]
"""Makes a part that works with the journal of that name."""


class Making(NamedTuple):
    """How this process makes parts of projections."""

    make: MakePart
    journals: Sequence[str] = (CLUSTERS_OWN,)


_making: Making | None = None


def set_parts(making: Making | None) -> Making | None:
    """Say how parts of projections are made in this process; return how they were so far."""
    global _making
    former, _making = _making, making
    return former


class Work:
    """The work of one part, until it is cancelled."""

    def __init__(self, projection: ProjectionType, part: Part, number: int, parts: int) -> None:
        self.projection = projection
        self.woken = asyncio.Event()
        self._part = part
        self._number = number
        self._parts = parts
        self._careful = 0
        self._failures = 0
        self._tidied_at = 0.0
        self._now = asyncio.get_running_loop().time

    async def run(self) -> None:
        try:
            while True:
                self.woken.clear()
                pause = await self._turn()
                if pause > 0:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(pause):
                            await self.woken.wait()
        finally:
            await self._part.close()

    async def _turn(self) -> float:
        """Take a turn; return how long to wait for a wake-up, if at all."""
        try:
            outcome = await self._part.turn(self._number, self._parts, careful=self._careful > 0)
        except HandlerFailed as error:
            again = " again" if self._careful else ""
            logger.warning(
                "%s, part %d: a handler has failed%s (%s)", self.projection.name, self._number, again, error,
                extra={"action": "projection_failed"},
            )  # fmt: skip
            self._careful = CAREFUL_TURNS
            if again:
                await asyncio.sleep(self._back_off())  # whatever is committed
            return 0.0
        except NotReady as error:
            pause = self._back_off()
            if self._failures == 1:
                logger.warning(
                    "%s, part %d cannot go on now: %s", self.projection.name, self._number, error,
                    extra={"action": "projection_waits"},
                )  # fmt: skip
            await asyncio.sleep(pause)
            return 0.0
        except (ProjectionError, Refused) as error:
            logger.error(
                "%s, part %d does not go on: %s", self.projection.name, self._number, error,
                extra={"action": "projection_refused"},
            )  # fmt: skip
            await asyncio.sleep(REFUSED_SECONDS)
            return 0.0
        self._failures = 0
        self._careful = CAREFUL_TURNS if outcome.failed else max(0, self._careful - 1)
        if outcome.paused:
            await asyncio.sleep(POLL_SECONDS)  # whatever is committed
        if outcome.more:
            return 0.0
        await self._tidy()
        return 0.0 if outcome.paused else POLL_SECONDS

    async def _tidy(self) -> None:
        if self._number == 0 and self._now() - self._tidied_at >= TIDY_SECONDS:
            self._tidied_at = self._now()
            with contextlib.suppress(NotReady, ProjectionError, Refused):
                await self._part.tidy()

    def _back_off(self) -> float:
        self._failures += 1
        return doubled(RETRY_SECONDS, self._failures - 1, RETRY_MAX_SECONDS)


class PartWorker(Worker):
    """The numbered worker around it."""

    projection: ClassVar[ProjectionType]

    def __init__(self) -> None:
        self._works: list[Work] = []
        "One for each journal."

    @command
    def wake(self) -> int:
        """Look at once: something was committed. Answer how many workers there are."""
        for each in self._works:
            each.woken.set()
        return self.workers

    async def run(self) -> None:
        if _making is None:
            raise RuntimeError("no projections are run in this process")
        self._works = [
            Work(self.projection, _making.make(self.projection, each), self.number, self.workers)
            for each in _making.journals
        ]
        if len(self._works) == 1:
            await self._works[0].run()
            return
        async with asyncio.TaskGroup() as group:
            for work in self._works:
                group.create_task(work.run())


def workers_of(projection: ProjectionType) -> str:
    """Return the name of the entity type of a projection's workers."""
    return f"{PROJECTION_WORKERS}{projection.name}"


def declare_workers(projections: Iterable[ProjectionType]) -> None:
    """Declare the workers of projections: the nodes start them."""
    for each in projections:
        worker = type(
            f"{each.cls.__name__}Worker", (PartWorker,), {"projection": each, "__module__": __name__}
        )
        ShardedDaemonProcess.start(
            workers_of(each).removeprefix(WORKERS), worker=worker, workers=each.parts, role=each.role
        )
