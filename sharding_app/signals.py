"""Django signals for events of the cluster. An error in a receiver affects nothing else.

One thread in the node's process sends them in order: a receiver that blocks delays only later
signals. Beyond `MAX_WAITING` signals are dropped, counted and logged. Each carries plain values by
keyword, never an entity's state or a message's content.
The sender is the entity's class where there is one, else None.

==================== ==============================================================================
``node_up``          incarnation, name: this node is up; at the coordinator's node also: another
                     one is
``node_down``        incarnation, name: this node ends; at the coordinator's: another one left, or
                     is dead
``coordinator_changed`` term, incarnation: the coordinator from now on (None: there is none)
``shard_started``    entity_type, shard, epoch: this node is the home of the shard
``shard_stopped``    entity_type, shard, epoch: it no longer is
``entity_failed``    entity_type, entity_id, command, error: a handler raised (`error` names its
                     exception's class), or a recovery failed (`command` is empty)
==================== ==============================================================================
"""

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from django.db import close_old_connections
from django.dispatch import Signal

from sharding_app.entities.entity_type import EntityType
from sharding_app.protocol.ids import Epoch, Incarnation, ShardId, Term
from sharding_app.redaction import traceable

logger = logging.getLogger("sharding.node")

MAX_WAITING = 10_000

node_up = Signal()
node_down = Signal()
coordinator_changed = Signal()
shard_started = Signal()
shard_stopped = Signal()
entity_failed = Signal()


class SignalListener:
    """`runtime.base.interfaces.Listener`: sends the signals above, by `run`."""

    def __init__(self, run: Callable[[Callable[[], None]], None] = lambda work: work()) -> None:
        self._run = run

    def node_up(self, incarnation: Incarnation, name: str) -> None:
        self._send(node_up, None, incarnation=incarnation, name=name)

    def node_down(self, incarnation: Incarnation, name: str) -> None:
        self._send(node_down, None, incarnation=incarnation, name=name)

    def coordinator_changed(self, term: Term, incarnation: Incarnation | None) -> None:
        self._send(coordinator_changed, None, term=term, incarnation=incarnation)

    def shard_started(self, entity_type: EntityType, shard: ShardId, epoch: Epoch) -> None:
        self._send(shard_started, entity_type.cls, entity_type=entity_type.name, shard=shard, epoch=epoch)

    def shard_stopped(self, entity_type: EntityType, shard: ShardId, epoch: Epoch) -> None:
        self._send(shard_stopped, entity_type.cls, entity_type=entity_type.name, shard=shard, epoch=epoch)

    def entity_failed(
        self, entity_type: EntityType, entity_id: str, command: str, error: BaseException
    ) -> None:
        self._send(
            entity_failed,
            entity_type.cls,
            entity_type=entity_type.name,
            entity_id=entity_id,
            command=command,
            error=type(error).__qualname__,
        )

    def _send(self, signal: Signal, sender: type | None, **facts: Any) -> None:
        if signal.receivers:
            self._run(partial(_sent, signal, sender, facts))


def _sent(signal: Signal, sender: type | None, facts: dict[str, Any]) -> None:
    try:
        signal.send_robust(sender, **facts)
    except BaseException as error:  # it takes no more than Exceptions, and no async receivers on a loop
        logger.error(
            "a receiver of a signal raised %s", type(error).__qualname__,
            exc_info=traceable(error), extra={"action": "receiver_failed"},
        )  # fmt: skip


class SignalThread:
    """Runs receivers one after the other beside the event loop, so that one that blocks holds up no
    entity.
    """

    def __init__(self) -> None:
        self.dropped = 0
        self._waiting: queue.Queue[Callable[[], None]] = queue.Queue(MAX_WAITING)
        self._thread: threading.Thread | None = None

    def __call__(self, work: Callable[[], None]) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="sharding-signals", daemon=True)
            self._thread.start()
        try:
            self._waiting.put_nowait(work)
        except queue.Full:
            self.dropped += 1
            if self.dropped == 1 or self.dropped % MAX_WAITING == 0:
                logger.error(
                    "receivers of signals are too slow: %d signals were dropped", self.dropped,
                    extra={"action": "signals_dropped"},
                )  # fmt: skip

    def finish(self, seconds: float) -> None:
        """Wait until all receivers that have been called have run, for that time at most."""
        if self._thread is not None:
            done = threading.Event()
            until = time.monotonic() + seconds
            with contextlib.suppress(queue.Full):
                self._waiting.put(done.set, timeout=seconds)
                done.wait(until - time.monotonic())

    def _serve(self) -> None:
        while True:
            work = self._waiting.get()
            _tend_connections()
            work()
            _tend_connections()


def _tend_connections() -> None:
    """Do as Django does around a request. A connection that a receiver has spoiled may raise."""
    try:
        close_old_connections()
    except Exception as error:
        logger.error(
            "connections of receivers of signals could not be closed: %s", type(error).__qualname__,
            exc_info=traceable(error), extra={"action": "receiver_failed"},
        )  # fmt: skip
