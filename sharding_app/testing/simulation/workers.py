"""Numbered workers of the workload, an operator who changes their number, and their judge.

The judge hears of each step of each `run`, and of its end. It knows from the server which node has
a lease.

* A step is taken only while the node's lease is valid.
* A number lives once (promise 2), and workers of two sets never live at the same time.
* When all is calm, each number lives that the rows say (promise 10).

An instance is *alive* from its first step to its end, while its process runs and its node's lease
is valid and has not lapsed since.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

from sharding_app.entities.base import Worker
from sharding_app.entities.registry import registry
from sharding_app.entities.settings import ShardingSettings
from sharding_app.entities.sharding.workers import WorkerExtractor
from sharding_app.protocol.allocation.workers import EVENLY, MOST_WORKERS, WORKERS
from sharding_app.protocol.ids import Incarnation
from sharding_app.testing.simulation import workload
from sharding_app.testing.simulation.hosts import forced_of
from sharding_app.testing.simulation.promises import PromiseBroken

if TYPE_CHECKING:
    from sharding_app.runtime.node.node import Node
    from sharding_app.testing.simulation.world import World

SEEDS = (17, 18, 21, 22)
"""Of 24 seeds those with workers."""
FIRST = 3
WANTED = (5, 2, 4, 6, 1, 3)
"""Numbers that the operator wishes, one after the other."""
RESCALES = 5
STEP_SECONDS = 0.05
END_SECONDS = 0.02
"""A `run` that is cancelled takes this time to end."""
STILL_SECONDS = 0.5
"""A worker whose last step is older does not work."""
FAILS_IN = 200
"""One step of this number raises."""

with registry.isolated():

    class Porter(Worker):
        """Takes a step every now and then. Some fail."""

        async def run(self) -> None:
            watching = workload.observer
            if watching is None:
                return
            judge = watching.workers
            life = judge.begins(self)
            try:
                while True:
                    judge.steps(life)
                    await asyncio.sleep(STEP_SECONDS)
            except asyncio.CancelledError:
                await asyncio.sleep(END_SECONDS)
                raise
            finally:
                life.over = True


_made = Porter._sharding_type
if _made is None:
    raise LookupError("Porter is no type of entities")
PORTER = _made.renamed(
    f"{WORKERS}sim.Porter",
    ShardingSettings(
        number_of_shards=MOST_WORKERS, passivate_after_seconds=0, allocation=EVENLY, remember_entities=False
    ),
)
PORTER.extractor = WorkerExtractor()
PORTER.workers = FIRST


class Life:
    """One `run`."""

    __slots__ = ("forced", "generation", "last", "node", "number", "over", "total")

    def __init__(self, worker: Worker, node: Node, now: float) -> None:
        self.number = worker.number
        self.total = worker.workers
        self.node: Incarnation = node.incarnation
        self.generation = node.lifeline.lease.generation
        self.forced = _forced(node)
        self.last = now
        self.over = False

    def __str__(self) -> str:
        return f"worker {self.number} of {self.total} on {self.node}"


class WorkerChecker:
    def __init__(self, world: World) -> None:
        self._world = world
        self._lives: list[Life] = []
        self._random = Random(f"workers {world.seed}")
        self.steps_taken = 0

    # -- From the workers --------------------------------------------------------------------------

    def begins(self, worker: Worker) -> Life:
        node = self._world.running_node()
        if node is None:
            raise LookupError("a worker runs in no node")
        life = Life(worker, node, self._world.now)
        self._lives = [each for each in self._lives if not each.over]
        self._lives.append(life)
        self._world.transition("worker", "is there", "runs")
        return life

    def steps(self, life: Life) -> None:
        """Judge a step, or let it fail."""
        node = self._world.running_node()
        if node is None:
            return
        self.steps_taken += 1
        life.last = self._world.now
        if not self._world.is_valid(node):
            self._broke(2, "works_while_valid", f"{life} works without a lease")
        if not self._world.overlaps.excuses(node.incarnation):
            for other in self._lives:
                if other is not life and self._is_alive(other):
                    self._compare(life, other)
        if not self._random.randrange(FAILS_IN):
            self._world.transition("worker", "runs", "has failed")
            raise ZeroDivisionError("a worker fails")

    # -- From the world ----------------------------------------------------------------------------

    def went_back(self) -> None:
        """Forget all lives: their nodes may not know yet that their number is another one now."""
        self._lives.clear()

    async def rescale_now_and_then(self) -> None:
        """Wish other numbers, as an operator does."""
        world = self._world
        if PORTER not in world.cast.types:
            return
        random = Random(f"rescales {world.seed}")
        for workers in WANTED[:RESCALES]:
            await asyncio.sleep(random.random() * 4.0)
            if world.server.cluster.rescale(PORTER.name, workers) is not None:
                world.trace.note("world", None, "%d workers are wished", workers)
                world.transition("worker", "runs", "is rescaled")

    def missing(self) -> list[str]:
        """Return the workers that should live, and do not, or live in another set."""
        numbers = self._world.server.cluster.workers.get(PORTER.name)
        if numbers is None:
            return []
        alive = {
            (each.number, each.total)
            for each in self._lives
            if self._is_alive(each) and self._world.now - each.last < STILL_SECONDS
        }
        wanted = {(number, numbers.wanted) for number in range(numbers.wanted)}
        return [f"{PORTER.name}/{number} of {total}" for number, total in sorted(wanted ^ alive)]

    # -- Inside ------------------------------------------------------------------------------------

    def _compare(self, life: Life, other: Life) -> None:
        if other.number == life.number:
            self._broke(2, "one_live_worker", f"{life} beside {other}")
        elif other.total != life.total:
            self._broke(0, "one_set_of_workers", f"{life} beside {other}")

    def _is_alive(self, life: Life) -> bool:
        node = self._world.node_of(life.node)
        return (
            not life.over
            and node is not None
            and node.state != "ended"
            and self._world.is_valid(node)
            and not self._world.overlaps.excuses(node.incarnation)
            and node.lifeline.lease.generation == life.generation
            and _forced(node) == life.forced
        )

    def _broke(self, promise: int, name: str, detail: str) -> None:
        self._world.broke(PromiseBroken(promise, name, detail, PORTER.name))


def _forced(node: Node) -> int:
    """Return how many workers the node has given up by force."""
    return forced_of(node, PORTER.name)
