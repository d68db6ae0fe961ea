"""The interfaces of the rooms above, and what user code may raise."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Protocol

from sharding_app.entities.entity_type import EntityType
from sharding_app.ports.deliveries import MessageChanges
from sharding_app.ports.journal import EventRow
from sharding_app.ports.lifeline import Pulse
from sharding_app.protocol.ids import EntityId, Epoch, Incarnation, ShardId, Term
from sharding_app.protocol.liveness.node_lease import Lease
from sharding_app.protocol.records import Lineage, Server

RAISED = BaseException
"""Exceptions to catch around user code.

`sys.exit()` in a handler is an error of that handler, and so is a cancellation of something that it
awaits. If they escaped, they would end the loop or this job, and the entity would stay busy for
ever.
"""
NO_CALLER = ""
"""Stands for the caller of messages without one: a timer's command, a stop message."""


def ends_job(error: BaseException, task: "asyncio.Task[Any] | None", *, cancelled: bool) -> bool:
    """Whether the job itself ends: `cancelled` by its owner, or dropped with its loop."""
    if isinstance(error, asyncio.CancelledError):
        return cancelled
    # A handler that is dropped with its loop sees a GeneratorExit, and may raise anything else
    # instead: its clean-up finds no loop any more.
    try:
        return asyncio.current_task() is not task
    except RuntimeError:
        return True


class LifelineCallbacks(Protocol):
    """Plain functions that do not wait. A `LifelineThread` calls them on the main loop."""

    def on_valid(self) -> None:
        """The lease is valid for the first time: the node may join."""

    def on_settled(self, server: Server) -> None:
        """Both locks are held on this server: write it to the node's row. First just after
        `on_valid`.
        """

    def on_suspended(self) -> None:
        """The lease is lost: handle and answer nothing. `valid_until` has said so already."""

    def on_back(self, generation: int, settled: Server | None, lineage: Lineage) -> None:
        """Locks are held again in that lineage: both on `settled`, or one of them (None).

        Say so in the node's row, read the rows *now*, drop the shards that moved, then
        `resume(generation)`.
        """

    def on_elected(self, term: Term) -> None:
        """This node is the coordinator of that term."""

    def on_deposed(self) -> None:
        """The coordinator's lock is lost, or about to be given back."""

    def on_pulse(self, pulse: Pulse) -> None:
        """A ping was answered."""


class Heart(Protocol):
    """The main loop's heartbeat, as the lifeline sees it (`runtime.liveness.watchdog`)."""

    @property
    def beat(self) -> float:
        """A number that changes while the main loop turns."""

    def report_stall(self, seconds: float) -> None:
        """Log where the main thread stands."""


class Guard(Protocol):
    """Ends the process if a loop of it stands still for good (`runtime.liveness.watchdog`)."""

    def watch_over(self, name: str, thread: int, beat: Callable[[], float]) -> Callable[[], None]:
        """Look at the heartbeat of a loop in a thread of that ident, until the result is called."""


class LifelineControl(Protocol):
    """The lifeline of a node: a `Lifeline` on its own loop, or a `LifelineThread` around one."""

    @property
    def lease(self) -> Lease:
        """Only `valid_until` may be read from another thread than the lifeline's."""

    @property
    def valid_until(self) -> float: ...

    @property
    def term(self) -> Term | None:
        """Set while this node is the coordinator."""

    @property
    def refused(self) -> str:
        """Why the server takes no more sessions of the lifeline.

        Empty if it does, or has not answered.
        """

    @property
    def losses(self) -> int:
        """Sessions lost since the start, for metrics."""

    def start(self) -> None: ...

    def set_candidate(self, candidate: bool) -> None:
        """Stand for coordinator or not. Standing down gives the lock back."""

    def told_term(self, term: Term) -> None:
        """Learn the term of the rows: the coordinator of an older one stands down."""

    def look_now(self) -> None:
        """Watch the coordinator's lock closely for a while: the coordinator is suspected."""

    async def resign(self) -> None:
        """Stand down, and return when the coordinator's lock is given back or lost."""

    async def resume(self, generation: int) -> bool:
        """Become valid again after the rows were compared.

        False: lost again, the next `on_back` will come.
        """

    async def stop(self) -> None:
        """Give up the lease, then the sessions and with them all locks."""


class Watch(Protocol):
    """The watchdog (`runtime.liveness.watchdog`): who holds the loop, and how late the loop is."""

    running: tuple[str, str] | None
    "Set by the host: (entity type, command) of the handler that runs, or ran last."
    recovering: tuple[str, str] | None
    "Set by the loader: (entity type, id) of the entity that is being rebuilt from its events."
    lag_seconds: float
    "Delay of the loop's last beat."
    worst_lag_seconds: float
    blocked: int
    "Number of times that the loop was held for too long."

    def take_lag_seconds(self) -> float:
        """Return the worst delay since the last call."""
        ...


class Together(Protocol):
    """Appends rows of the journal in one transaction with a user's own writes (`in_transaction=`).

    There is at least one row: the fence checks it, and a retry finds it. Raises the errors of
    `Journal.append`, or those of a function; then nothing of it is committed. A commit whose answer
    is lost is settled before it returns.
    """

    async def __call__(
        self,
        rows: Sequence[EventRow],
        functions: Sequence[Callable[[], object]],
        changes: MessageChanges | None = None,
    ) -> datetime | None: ...

    async def held_up(self, type_id: int, entity: EntityId) -> str:
        """Return what the transaction of that entity waits for in the server; empty: nothing is
        known. Raises `JournalUnavailable`.
        """
        ...

    async def close(self) -> None: ...


class Listener(Protocol):
    """Notifications about a node. `wiring` turns them into Django's signals.

    Called on the node's event loop, in the order of events. An implementation raises nothing and
    returns at once.
    """

    def node_up(self, incarnation: Incarnation, name: str) -> None: ...

    def node_down(self, incarnation: Incarnation, name: str) -> None: ...

    def coordinator_changed(self, term: Term, incarnation: Incarnation | None) -> None: ...

    def shard_started(self, entity_type: EntityType, shard: ShardId, epoch: Epoch) -> None: ...

    def shard_stopped(self, entity_type: EntityType, shard: ShardId, epoch: Epoch) -> None: ...

    def entity_failed(
        self, entity_type: EntityType, entity_id: str, command: str, error: BaseException
    ) -> None: ...


class NoListener:
    """A listener that ignores everything."""

    def node_up(self, incarnation: Incarnation, name: str) -> None:
        """Do nothing."""

    def node_down(self, incarnation: Incarnation, name: str) -> None:
        """Do nothing."""

    def coordinator_changed(self, term: Term, incarnation: Incarnation | None) -> None:
        """Do nothing."""

    def shard_started(self, entity_type: EntityType, shard: ShardId, epoch: Epoch) -> None:
        """Do nothing."""

    def shard_stopped(self, entity_type: EntityType, shard: ShardId, epoch: Epoch) -> None:
        """Do nothing."""

    def entity_failed(
        self, entity_type: EntityType, entity_id: str, command: str, error: BaseException
    ) -> None:
        """Do nothing."""
