"""The numbered workers of one type here: their `run`, from the start of a shard to its end.

    shard here ──number read──> loaded ──> running ──returns, raises──> back-off ──> loaded
                                              │
                                              ├─ lease lost: cancelled ──lease back──> loaded
                                              └─ shard stops: cancelled ──ended──> shard stopped

Contract: each step of `run` is taken only while this node's lease, and the shard's own, are valid.
When one is lost, `run` is cancelled: the steps of its clean-up are the only ones that are taken
then, and for a limited time. Otherwise a `run` that swallows its cancellation would go on, while
its number lives elsewhere. A shard is not reported as stopped before its `run` has ended, or is
given up. In one process no `run` of a number begins before the former one of that number has ended,
whatever became of its shard.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from types import coroutine
from typing import Any, Protocol, cast

from sharding_app.entities.base import Worker
from sharding_app.entities.entity_type import EntityType
from sharding_app.errors import EntityFailed, ShardingError
from sharding_app.protocol.ids import ShardId
from sharding_app.protocol.supervision import Supervision
from sharding_app.redaction import told, traceable
from sharding_app.runtime.base import call_chain
from sharding_app.runtime.base.interfaces import RAISED, Listener, Watch, ends_job
from sharding_app.runtime.base.threads import Threads
from sharding_app.runtime.execution.execution import Execution
from sharding_app.runtime.hosting.failed_starts import FailedStarts
from sharding_app.runtime.journal.commits import Resident, ResidentShard
from sharding_app.runtime.journal.loader import Loader
from sharding_app.runtime.telemetry.meter import Meter

logger = logging.getLogger("sharding.worker")

RUN = "run"
INSIST_SECONDS = 1.0
"""Time between cancellations of a `run` that goes on after its time."""


class Returned(Exception):
    """Stands for the error of a `run` that has returned, which it is not meant to do."""


class Life(Protocol):
    """How workers come into memory (`runtime.hosting.entities`)."""

    failed_starts: FailedStarts

    def start_in(self, shard: ResidentShard, entity: str) -> None: ...

    def refuse(self, slot: Resident, failure: ShardingError) -> None:
        """Drop an entity; refuse the messages that wait for it."""


class WorkerHost(Protocol):
    """The host of a type, as its workers need it."""

    type: EntityType
    shards: dict[ShardId, ResidentShard]
    counters: Counter[str]
    meter: Meter
    listener: Listener
    threads: Threads
    closing: bool
    now: Callable[[], float]
    may_handle: Callable[[], bool]
    loader: Loader
    execution: Execution

    @property
    def entity_life(self) -> Life: ...

    def spawn(self, job: Coroutine[Any, Any, None]) -> None: ...

    def may_begin(self, shard: ResidentShard) -> bool: ...

    def settled(self, slot: Resident) -> None: ...

    async def lease(self) -> None: ...

    async def number_of_workers(self) -> int:
        """Return the number of workers in force; 0: the type has none."""


class _Run:
    """One `run` of one object."""

    __slots__ = ("cancelled", "ends_by", "generation", "lease_lost", "since", "slot", "task")

    def __init__(self, slot: Resident) -> None:
        self.slot = slot
        self.generation = slot.generation
        self.task: asyncio.Task[Any] | None = None
        self.cancelled = False
        self.lease_lost = False
        self.ends_by = float("inf")
        "The end of the time for its clean-up without a lease."
        self.since: float | None = None
        "When its first step was taken."

    def cancel(self) -> None:
        if not self.cancelled:
            self.cancelled = True
            if self.task is not None:
                self.task.cancel()


class WorkerRuns:
    def __init__(self, host: WorkerHost, watch: Watch, clean_up_seconds: float) -> None:
        """`clean_up_seconds`: the time that a `run` has to end after its lease was lost."""
        self._clean_up_seconds = clean_up_seconds
        self._host = host
        self._watch = watch
        self._supervision = host.type.settings.supervision or Supervision()
        self._totals: dict[ResidentShard, int] = {}
        "The number of workers, as it was read when the shard came."
        self._early: dict[ResidentShard, Resident] = {}
        "Workers that a message has called before the number was read."
        self._runs: dict[Resident, _Run] = {}
        self._tasks: dict[ShardId, set[asyncio.Task[Any]]] = {}
        "The tasks of each number. They may outlive their shard."

    # -- From the host -----------------------------------------------------------------------------

    def begin(self, shard: ResidentShard) -> None:
        """Start the worker of a shard that has come."""
        self._host.spawn(self._begin(shard))

    def total(self, shard: ResidentShard) -> int:
        return self._totals.get(shard, 0)

    def want(self, slot: Resident) -> None:
        """Load a worker for a message."""
        if slot.shard in self._totals:
            self._host.loader.want(slot)
        else:
            self._early[slot.shard] = slot

    def loaded(self, slot: Resident) -> None:
        """Let an object that is there run."""
        if not slot.shard.stopping:
            run = self._runs[slot] = _Run(slot)
            slot.shard.overlaps(slot)  # until it has ended the shard has not stopped
            self._host.spawn(self._run(run))

    def end(self, slot: Resident) -> None:
        """End the `run` of an object that is to stop; another one begins after a back-off."""
        run = self._runs.get(slot)
        if run is not None:
            run.cancel()
        else:
            self._failed(slot, Returned())

    def leave(self, shard: ResidentShard) -> None:
        """End the `run` of a shard that stops, or has left."""
        self._totals.pop(shard, None)
        self._early.pop(shard, None)
        for run in [run for slot, run in self._runs.items() if slot.shard is shard]:
            run.cancel()

    def suspend(self) -> None:
        """End all of them: the node's lease is lost. They begin again when it is back."""
        for run in list(self._runs.values()):
            self._lose(run)

    def give_up(self, slot: Resident) -> bool:
        """Wait no longer for a `run` that goes on after it was cancelled. False: there is none."""
        run = self._runs.pop(slot, None)
        if run is None:
            return False
        self._host.spawn(self._insist(run))
        return True

    # -- Inside ------------------------------------------------------------------------------------

    async def _begin(self, shard: ResidentShard) -> None:
        """Read how many workers there are, once for each time that a shard comes.

        The number in force changes only while no worker has a home. If this shard still is here
        then, what was read is true.
        """
        number = await self._host.number_of_workers()
        if self._host.shards.get(shard.number) is not shard or shard.stopping or shard.number >= number:
            return
        self._totals[shard] = number
        slot = self._early.pop(shard, None)
        if slot is None or slot.is_gone:
            self._host.entity_life.start_in(shard, str(shard.number))
        else:
            self._host.loader.want(slot)

    async def _run(self, run: _Run) -> None:
        host, number, task = self._host, run.slot.shard.number, asyncio.current_task()
        if task is None:
            raise RuntimeError("a worker runs in a task")
        tasks = self._tasks.setdefault(number, set())
        # All of them: one that waits for others itself may be cancelled, and they go on.
        former = frozenset(tasks)
        tasks.add(task)
        run.task = task
        error: BaseException = Returned()
        try:
            if former:
                await asyncio.wait(former)
            if not run.cancelled:
                await host.lease()
                with call_chain.outside():
                    async with host.threads.apart():
                        run.since = host.now()
                        host.entity_life.failed_starts.runs(run.slot.id)
                        worker = cast(Worker, run.slot.entity)
                        await stepwise(worker.run(), partial(self._may_go_on, run))
        except RAISED as raised:
            if ends_job(raised, task, cancelled=host.closing):
                raise
            error = raised
        finally:
            tasks.discard(task)
            if not tasks:
                del self._tasks[number]
        self._over(run, error)

    def _may_go_on(self, run: _Run) -> bool:
        """Whether the next step may be taken. If not, the task is cancelled from now on."""
        host, shard = self._host, run.slot.shard
        cleans_up = run.cancelled
        if not (host.may_handle() and host.may_begin(shard)):
            self._lose(run)
            if not cleans_up:
                return False
            if run.task is not None and host.now() >= run.ends_by:
                run.task.cancel()
                return False
        self._watch.running = host.type.name, RUN
        return True

    def _lose(self, run: _Run) -> None:
        """End a `run` whose lease is lost, whether it is to end already or not."""
        if not run.lease_lost:
            run.lease_lost = True
            run.ends_by = self._host.now() + self._clean_up_seconds
            run.cancel()
            self._host.spawn(self._insist(run, self._clean_up_seconds))

    def _over(self, run: _Run, error: BaseException) -> None:
        """Start the worker again after its `run`, unless its shard stops or has left."""
        host, slot = self._host, run.slot
        if self._runs.get(slot) is run:
            del self._runs[slot]
        if slot.is_gone or slot.generation != run.generation:
            return
        if slot.shard.stopping:
            host.settled(slot)
            return
        if run.since is not None and host.now() - run.since >= self._supervision.forgive_after_seconds:
            host.entity_life.failed_starts.forget(slot.id)
        then = partial(self._again, slot) if run.lease_lost else partial(self._failed, slot, error)
        if not host.execution.outdate(slot, then):
            then()

    def _again(self, slot: Resident) -> None:
        """Drop an object that has lost its lease; make another when the lease is back."""
        if not slot.is_gone:
            self._host.entity_life.refuse(slot, self._failure(slot, "it has lost its lease"))
            self._host.spawn(self._start_with_lease(slot.shard))

    async def _start_with_lease(self, shard: ResidentShard) -> None:
        await self._host.lease()
        self._host.entity_life.start_in(shard, str(shard.number))

    def _failed(self, slot: Resident, error: BaseException) -> None:
        """Drop an object whose `run` is over; make another after a back-off."""
        host, name = self._host, self._host.type.name
        if slot.shard.stopping:
            return
        if isinstance(error, Returned):
            host.counters["workers_returned"] += 1
            failure = self._failure(slot, "it has returned")
            logger.warning(
                "worker %s of %s has returned: it is started again", slot.id, name,
                extra={"action": "worker_returned", "entity_type": name, "entity": slot.id},
            )  # fmt: skip
        else:
            host.counters["workers_failed"] += 1
            host.meter.trouble(slot.id, RUN, type(error).__qualname__)
            host.listener.entity_failed(host.type, slot.id, RUN, error)
            failure = self._failure(slot, f"it has raised {told(error)}")
            logger.error(
                "worker %s of %s has raised %s: it is started again", slot.id, name, type(error).__qualname__,
                exc_info=traceable(error),
                extra={"action": "worker_failed", "entity_type": name, "entity": slot.id},
            )  # fmt: skip
        host.entity_life.failed_starts.failed(slot, error, failure)
        if not slot.is_gone:
            host.entity_life.refuse(slot, failure)

    def _failure(self, slot: Resident, why: str) -> ShardingError:
        """Make the error for callers whose messages wait for an object that is dropped."""
        name = self._host.type.name
        return EntityFailed(
            f"worker {slot.id} of {name} is started again: {why}", params={"type": name, "entity_id": slot.id}
        )

    async def _insist(self, run: _Run, after: float = 0.0) -> None:
        """Cancel a `run` again and again until it ends: its shard is given up, or its lease is
        lost.
        """
        if run.task is not None:
            await asyncio.wait([run.task], timeout=after)
        while run.task is not None and not run.task.done():
            run.task.cancel()
            await asyncio.wait([run.task], timeout=INSIST_SECONDS)


@coroutine
def stepwise(job: Coroutine[Any, Any, Any], may_go_on: Callable[[], bool]) -> Generator[Any, Any, Any]:
    """Run a coroutine, and ask before each of its steps whether it may be taken.

    A `may_go_on` that says no has cancelled this task: the coroutine gets the CancelledError, and
    not the step's value.
    """
    value: Any = None
    error: BaseException | None = None
    while True:
        if not may_go_on():
            try:
                yield
            except BaseException as raised:  # noqa: BLE001  (the coroutine gets it)
                error = raised
        try:
            waits_for = job.send(value) if error is None else job.throw(error)
        except StopIteration as end:
            return end.value
        try:
            value, error = (yield waits_for), None
        except BaseException as raised:  # noqa: BLE001
            value, error = None, raised
