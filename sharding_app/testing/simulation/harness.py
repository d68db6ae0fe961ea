"""The common tools of phases: jobs under way, conditions with a deadline, calls to every entity.

Each waits on virtual time, and ends at once when a promise is broken or the run is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

from sharding_app.testing.simulation.clients import Client
from sharding_app.testing.simulation.liveness import is_settled
from sharding_app.testing.simulation.loop import Life, Process, SimLoop
from sharding_app.testing.simulation.promises import Call, PromiseBroken
from sharding_app.testing.simulation.topology import Named

if TYPE_CHECKING:
    from sharding_app.testing.simulation.world import World

HEALED_SECONDS = 20.0
QUIET_SECONDS = 2.0
CALLED_SECONDS = 1.0


class Stage:
    def __init__(self, world: World, steps: int | None = None) -> None:
        self.world = world
        self._steps = steps
        self._jobs: dict[asyncio.Task[None], Process] = {}
        "Jobs of the present phase that have not ended, and their processes."

    @property
    def is_over(self) -> bool:
        """Whether a promise is broken, or the run has had its steps."""
        return self.world.failure is not None or self._is_cut()

    @property
    def is_idle(self) -> bool:
        # Asked after each event: `all` takes four times as long.
        for process in self._jobs.values():  # noqa: SIM110
            if process.life is not Life.CRASHED:
                return False
        return True

    def job(self, loop: SimLoop, job: Coroutine[Any, Any, None]) -> None:
        task = loop.create_task(job)
        self._jobs[task] = loop.process
        task.add_done_callback(self._ended)

    def users(self, client: Client, *users: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Let users call through a client, and in this phase through each process that takes its
        place.
        """

        def begin() -> None:
            for each in users:
                self.job(client.loop, client.begin(each))

        client.on_boot.append(begin)
        begin()

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._jobs[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            self.world.broke(PromiseBroken(0, "runs_without_mistakes", f"a client failed: {error!r}"))

    def until(
        self,
        condition: Callable[[], bool],
        seconds: float,
        what: str,
        promise: int = 10,
        *,
        at_once: int = 1,
    ) -> None:
        world = self.world
        if world.failure is not None:
            return
        done = world.scheduler.run(
            until=lambda: (
                world.failure is not None or condition() or (self._steps is not None and self._is_cut())
            ),
            deadline=world.now + seconds,
            at_once=at_once,
        )
        if not done:
            world.broke(PromiseBroken(promise, "liveness", f"not within {seconds:g} s: {what}"))

    def pass_time(self, seconds: float) -> None:
        self.world.scheduler.run(
            until=lambda: self.world.failure is not None, deadline=self.world.now + seconds
        )

    def settle(self, what: str) -> None:
        """Let work under way come to its end, and check that it has."""
        self.pass_time(QUIET_SECONDS)
        self.until(lambda: is_settled(self.world), HEALED_SECONDS, what)

    def reach_all(
        self,
        what: str,
        seconds: float = HEALED_SECONDS,
        entities: Sequence[Named] | None = None,
        promise: int = 10,
    ) -> None:
        for client in self.world.clients:
            for entity in self.world.cast.called if entities is None else entities:
                self.job(client.loop, client.reach(entity))
        self.until(lambda: self.is_idle, seconds, what, promise)

    def call(self, entity: Named, command: str) -> Call:
        """Have the first client make a call now."""
        return self.calls([entity], command)[0]

    def calls(self, entities: Sequence[Named], *commands: str) -> list[Call]:
        """Have the first client make one call to each entity now, without waiting in between.

        The entities get the commands in turn.
        """
        client, known = self.world.clients[0], self.world.witness.calls
        made: list[Call] = []

        def call() -> None:
            for entity, command in zip(entities, cycle(commands), strict=False):
                client.caller.call(client.asking, entity, command)
                made.append(known[-1])

        client.loop.call_soon_threadsafe(call)
        self.until(lambda: bool(made), CALLED_SECONDS, "calls are made")
        # If the run is over, the calls were not made, and are not looked at.
        return made or [Call(0, "", "", commands[0], (), self.world.now) for _ in entities]

    def runs_without_a_message(self, when: str) -> None:
        missing = self.world.registry.missing
        self.until(lambda: not missing(), HEALED_SECONDS, f"what should run runs {when}")
        failure = self.world.failure
        if failure is not None and failure.name == "liveness" and (gone := missing()):
            self.world.trace.note("world", None, "does not run: %s", ", ".join(gone))

    def _is_cut(self) -> bool:
        return self._steps is not None and self.world.scheduler.turns >= self._steps
