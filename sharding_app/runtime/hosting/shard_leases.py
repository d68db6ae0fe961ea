"""Shards and singletons that start only with their lease (`use_lease`), and stop when it is lost.

`LeaseKeeper` is the shell of `protocol.liveness.shard_lease` over one `ports.lease.Leases`. A host
asks its `ShardGate` before it starts a shard. A type without leases has no gate, and a node without
such types no keeper: there they cost nothing.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, assert_never

from sharding_app.ports.lease import Leases
from sharding_app.protocol.ids import Epoch, ShardId
from sharding_app.protocol.liveness.shard_lease import (
    Acquire,
    Granted,
    LeaseTerms,
    Lost,
    Refused,
    Release,
    Renew,
    ShardLeases,
)
from sharding_app.runtime.base.interfaces import RAISED, ends_job
from sharding_app.runtime.base.waiting import set_within

logger = logging.getLogger("sharding.lease")


class LeaseKeeper:
    """All leases that this node takes from one arbiter."""

    def __init__(self, leases: Leases, terms: LeaseTerms, now: Callable[[], float], check_name: str) -> None:
        self.reachable = False
        "Whether the arbiter has ever answered."
        self._silent = False
        self._leases = leases
        self._machine = ShardLeases(terms)
        self._terms = terms
        self._now = now
        self._check_name = check_name
        self._gates: dict[str, tuple[ShardGate, ShardId]] = {}
        self._wake = asyncio.Event()
        self._empty = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def holds(self, name: str) -> bool:
        return self._machine.holds(name, self._now())

    def has_lost(self, name: str) -> bool:
        return self._machine.has_lost(name, self._now())

    def want(self, name: str, gate: "ShardGate", number: ShardId) -> None:
        self._gates[name] = gate, number
        self._machine.want(name, self._now())
        self._wake.set()

    def unwant(self, name: str) -> None:
        self._machine.unwant(name, self._now())
        self._wake.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._check())
            try:
                await self._keep(group)
            finally:
                await self._close()

    async def released(self, seconds: float) -> None:
        """Wait until all unwanted leases are given back, for `seconds` at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                while len(self._machine):
                    self._empty.clear()
                    await self._empty.wait()

    # -- Inside ------------------------------------------------------------------------------------

    async def _close(self) -> None:
        """Close the arbiter's client. The node begins anew behind that, or ends."""
        try:
            await self._leases.close()
        except Exception as error:  # noqa: BLE001  (an arbiter of the user's may raise anything)
            self._failed(error)

    async def _check(self) -> None:
        """Take and give back a lease that all nodes share.

        That another node holds it is an answer too.
        """
        task = asyncio.current_task()
        while not self.reachable:
            try:
                async with asyncio.timeout(self._terms.answer_seconds):
                    if self._check_name in await self._leases.acquire([self._check_name]):
                        await self._leases.release([self._check_name])
            except RAISED as error:
                if _is_our_end(error, task) or (task is not None and task.cancelling()):
                    raise
                self._failed(error)
                await asyncio.sleep(self._terms.retry_seconds)
            else:
                self.reachable = True

    async def _keep(self, group: asyncio.TaskGroup) -> None:
        machine = self._machine
        while True:
            self._wake.clear()
            machine.tick(self._now())
            effects, machine.out = machine.out, []
            for effect in effects:
                match effect:
                    case Acquire():
                        group.create_task(self._acquire(effect.names))
                    case Renew():
                        group.create_task(self._renew(effect.names))
                    case Release():
                        group.create_task(self._release(effect.names))
                    case Granted():
                        gate, number = self._gates[effect.name]
                        gate.granted(number)
                    case Refused():
                        logger.warning(
                            "lease %s is not ours to take: waiting",
                            effect.name,
                            extra={"action": "lease_refused"},
                        )
                    case Lost():
                        gate, number = self._gates[effect.name]
                        logger.warning("lease %s is lost", effect.name, extra={"action": "lease_lost"})
                        gate.lost(number)
                    case _:
                        assert_never(effect)
            if not len(machine):
                self._gates.clear()
                self._empty.set()
            if machine.out:
                continue
            due = machine.next_due
            await set_within(self._wake, None if due == float("inf") else max(0.0, due - self._now()))

    async def _acquire(self, names: list[str]) -> None:
        sent_at = self._now()
        granted = await self._answer(self._leases.acquire(names))
        if granted is None:
            self._machine.unanswered(names, self._now())
        else:
            self._machine.answered(names, frozenset(granted), sent_at, self._now())
        self._wake.set()

    async def _renew(self, names: list[str]) -> None:
        sent_at = self._now()
        kept = await self._answer(self._leases.renew(names))
        if kept is None:
            self._machine.not_renewed(names, self._now())
        else:
            self._machine.renewed(names, frozenset(kept), sent_at)
        self._wake.set()

    async def _release(self, names: list[str]) -> None:
        if await self._answer(self._done(names)) is None:
            self._machine.not_released(names, self._now())
        else:
            self._machine.released(names, self._now())
        self._wake.set()

    async def _done(self, names: list[str]) -> Sequence[str]:
        await self._leases.release(names)
        return names

    async def _answer(self, request: Coroutine[Any, Any, Any]) -> Any:
        """Return the arbiter's answer; None: it failed, or did not come in time."""
        task = asyncio.current_task()
        try:
            async with asyncio.timeout(self._terms.answer_seconds):
                answer = await request
            self._silent = False
            return answer
        except RAISED as error:
            if _is_our_end(error, task):
                raise
            self._failed(error)
            return None

    def _failed(self, error: BaseException) -> None:
        if self._silent:
            return  # logged already, and nothing has been heard since
        self._silent = True
        logger.warning("the leases do not answer: %r", error, extra={"action": "lease_unanswered"})


def _is_our_end(error: BaseException, task: "asyncio.Task[Any] | None") -> bool:
    """Whether the request was cancelled with the node, and not by the arbiter: of its requests that
    share a future, the end of one may cancel the others.
    """
    return ends_job(error, task, cancelled=task is not None and task.cancelling() > 0)


class ShardGate:
    """Lets the shards of one type in, with their leases."""

    def __init__(
        self,
        keeper: LeaseKeeper,
        name_of: Callable[[ShardId], str],
        on_granted: Callable[[ShardId, Epoch], None],
        on_lost: Callable[[ShardId, Epoch], None],
    ) -> None:
        self._keeper = keeper
        self._name_of = name_of
        self._on_granted = on_granted
        self._on_lost = on_lost
        self._epochs: dict[ShardId, Epoch] = {}
        self._waiting: dict[ShardId, list[asyncio.Future[None]]] = {}

    @property
    def wanted(self) -> dict[ShardId, Epoch]:
        """The shards that have a lease here or wait for one, with the epochs of their rows."""
        return dict(self._epochs)

    def has_lease(self, number: ShardId, epoch: Epoch) -> bool:
        """Whether a shard that was let in at that epoch may start, or go on."""
        return self._epochs.get(number) == epoch and self._keeper.holds(self._name_of(number))

    def admits(self, number: ShardId, epoch: Epoch) -> bool:
        """Whether a shard whose row names us may start.

        If not now, ask for its lease: `on_granted` follows.
        """
        name = self._name_of(number)
        if self._keeper.has_lost(name):
            return False  # its shard has not stopped: the lease is asked for once it is given back
        self._epochs[number] = max(epoch, self._epochs.get(number, epoch))
        if self._keeper.holds(name):
            return True
        self._keeper.want(name, self, number)
        return False

    def holds(self, number: ShardId) -> bool:
        """Whether a started shard still has its lease. If not, the shard is stopped at once."""
        if self._keeper.holds(self._name_of(number)):
            return True
        self.lost(number)
        return False

    def left(self, number: ShardId, epoch: Epoch) -> None:
        """Give back the lease of a shard that has stopped here, or will not start."""
        if self._epochs.get(number, epoch + 1) <= epoch:
            del self._epochs[number]
            self._keeper.unwant(self._name_of(number))
            self._tell(number)

    async def changed(self, number: ShardId) -> None:
        """Return when a shard that waits has its lease, or waits no more."""
        if number in self._epochs and not self._keeper.holds(self._name_of(number)):
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(number, []).append(future)
            await future

    def granted(self, number: ShardId) -> None:
        epoch = self._epochs.get(number)
        if epoch is not None:
            self._tell(number)
            self._on_granted(number, epoch)

    def lost(self, number: ShardId) -> None:
        epoch = self._epochs.get(number)
        if epoch is not None:
            self._on_lost(number, epoch)

    def _tell(self, number: ShardId) -> None:
        for future in self._waiting.pop(number, ()):
            if not future.done():
                future.set_result(None)
