"""A cluster on virtual time: real nodes and clients, a faulty network and store, a workload, and a judge.

`run_seed` is all that callers need. One seed gives one history: whatever is left to chance comes from it. What happens
in it is told in `phases`; here is what it consists of, and what its parts ask of it.
"""

from __future__ import annotations

import asyncio
import gc
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, cast

from sharding_app.adapters.memory.server import MemoryServer
from sharding_app.core.ids import Incarnation, ShardId, shard_of
from sharding_app.runtime.lifeline import Lifeline
from sharding_app.runtime.node import Node
from sharding_app.simulation import workload
from sharding_app.simulation.beliefs import Beliefs
from sharding_app.simulation.cast import cast_of
from sharding_app.simulation.clients import Client
from sharding_app.simulation.conditions import Conditions
from sharding_app.simulation.faults import STRANGERS, Fault, schedule
from sharding_app.simulation.hindsight import look_back
from sharding_app.simulation.injector import Injector
from sharding_app.simulation.judge import Judge, JudgedStrategy
from sharding_app.simulation.loop import SimLoop
from sharding_app.simulation.machines import watched
from sharding_app.simulation.network import CountingNetwork
from sharding_app.simulation.obstacles import Obstacles
from sharding_app.simulation.overlaps import Overlaps
from sharding_app.simulation.phases import PHASES
from sharding_app.simulation.promises import PromiseBroken
from sharding_app.simulation.registry import Registry
from sharding_app.simulation.scheduler import Life, Process, Scheduler
from sharding_app.simulation.stage import Stage
from sharding_app.simulation.trace import Coverage, Trace, listening
from sharding_app.simulation.virtual_node import SHARD_LEASES, VirtualNode
from sharding_app.simulation.witness import Witness, token_of

CLIENTS = 2
LOOK_EVERY = 4


@dataclass(slots=True)
class Outcome:
    """What a seed has shown."""

    seed: int
    broken: PromiseBroken | None
    trace: list[str]
    faults: list[Fault]
    steps: int
    commands: int
    commits: int
    seconds: float
    "Virtual ones."
    digest: int
    "Equal for equal histories."
    coverage: Coverage = field(repr=False)


def run_seed(
    seed: int, nodes: int = 3, faults: list[Fault] | None = None, steps: int | None = None
) -> Outcome:
    """Run one world to its end. `faults` replaces the seed's own; `steps` ends the run early."""
    return World(seed, nodes, faults, steps).run()


class World:
    def __init__(self, seed: int, nodes: int, faults: list[Fault] | None, steps: int | None) -> None:
        self.seed = seed
        self.size = nodes
        self.cast = cast_of(seed)
        self.version = 1
        "Of the application, that is deployed at present."
        self.calm = False
        "No fault is going on, and none has for a while."
        self.scheduler = Scheduler(seed)
        self.coverage = Coverage()
        self.conditions = Conditions(seed, self.coverage.faults)
        self.trace = Trace(lambda: self.scheduler.now)
        self.server = MemoryServer(
            now=lambda: self.scheduler.now,
            later=self.scheduler.later,
            faults=self.conditions,
            cluster_id=f"world{seed}",
        )
        self.server.ends_others = seed % 3 != 1
        self.server.standby.give_up_seconds = self.conditions.answer_seconds
        self.network = CountingNetwork(
            self.coverage.messages, later=self.scheduler.later, faults=self.conditions
        )
        self.overlaps = Overlaps(self)
        self.beliefs = Beliefs(lambda: self.scheduler.now, SHARD_LEASES.ttl_seconds)
        self.registry = Registry(self)
        self.judge = Judge(self)
        self.strategy = JudgedStrategy(self)
        self.witness = Witness(self, self.server, self.trace)
        self.network.on_send = self.witness.sent
        self.obstacles = Obstacles(self.server, token_of)
        self.failure: PromiseBroken | None = None
        self.commands = 0
        self.nodes = [VirtualNode(self, number) for number in range(nodes)]
        self.clients = [Client(self, number) for number in range(CLIENTS)]
        self.outside = SimLoop(Process(self.scheduler, "outside"))
        "Where those live who outlive every process of the cluster."
        if faults is None:
            faults = schedule(seed, nodes, moves=self.cast.moves, whole_protocol=self.cast.whole_protocol)
        self.faults = faults
        self.injector = Injector(self, seed)
        self._steps = steps
        self._by_process: dict[str, VirtualNode] = {each.name: each for each in self.nodes}

    @property
    def now(self) -> float:
        return self.scheduler.now

    # -- What others ask of it -------------------------------------------------------------------------------------

    def broke(self, error: PromiseBroken) -> None:
        if self.failure is None:
            self.failure = error
            self.trace.note("world", None, "BROKEN %s", error)

    def transition(self, machine: str, before: str, after: str) -> None:
        self.coverage.transitions[machine, before, after] += 1

    def channel_of(self, incarnation: Incarnation) -> str:
        return f"sharding.{self.server.cluster_id}.{incarnation}"

    def running_node(self) -> Node | None:
        """The node in whose process the present code runs."""
        loop = asyncio.get_running_loop()
        found = self._by_process.get(loop.process.name) if isinstance(loop, SimLoop) else None
        return found.node if found is not None else None

    def node_of(self, incarnation: Incarnation) -> Node | None:
        """The node of an incarnation, if its process lives and it is the present one."""
        for each in self.nodes:
            if each.runs and each.node is not None and each.node.incarnation == incarnation:
                return each.node
        return None

    def shard_of(self, type_name: str, entity_id: str) -> ShardId:
        made = next(each for each in self.cast.types if each.name == type_name)
        return shard_of(entity_id, made.settings.number_of_shards or 1)

    def is_valid(self, node: Node) -> bool:
        return node.ports.clock.now() < node.lifeline.valid_until

    def has_heard(self, node: Node) -> bool:
        """Whether it lives in the server's present lineage."""
        return cast(Lifeline, node.lifeline).lease.lineage == self.server.identity.lineage

    def coordinator(self) -> VirtualNode | None:
        incarnation = self.server.cluster.coordinator.incarnation
        for each in self.nodes:
            if each.runs and incarnation in each.incarnations:
                return each
        return None

    def crash_all(self) -> None:
        """Every node dies at once."""
        for each in self.nodes:
            each.crash()
        self.judge.everything_is_down()

    # -- The run ---------------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        collects = gc.isenabled()
        gc.disable()
        try:
            with ExitStack() as stack:
                stack.enter_context(listening(self.trace, self._mistake))
                stack.enter_context(watched(self.coverage))
                workload.observer = self.witness
                self.scheduler.on_turn = self._after_turn
                self.scheduler.on_error = self._unhandled
                self.scheduler.on_spin = self._spins
                self._play(Stage(self, self._steps))
                outcome = self._outcome()
                workload.observer = None
                self.scheduler.close()
        finally:
            workload.observer = None
            if collects:
                gc.enable()
        return outcome

    def _play(self, stage: Stage) -> None:
        for phase in PHASES:
            if stage.is_over:
                return
            self.trace.note("world", None, "PHASE %s", phase.__name__)
            phase(stage)
        if not stage.is_over:
            look_back(self)

    def _after_turn(self, loop: SimLoop) -> None:
        if self.scheduler.turns % LOOK_EVERY:
            return
        found = self._by_process.get(loop.process.name)
        if found is not None and found.node is not None and found.process.life is Life.RUNNING:
            self.witness.look(found.node)
        if not self.scheduler.turns % 256:
            self.witness.look_at_calls()

    def _unhandled(self, loop: SimLoop | None, context: dict[str, Any]) -> None:
        who = loop.process.name if loop is not None else "world"
        detail = f"{who}: {context.get('message')} {context.get('exception')!r}"
        self.broke(PromiseBroken(0, "runs_without_mistakes", detail))

    def _spins(self, loop: SimLoop, callback: str) -> None:
        detail = f"{loop.process.name}: {callback} goes on without a pause"
        self.broke(PromiseBroken(14, "nothing_spins", detail))

    def _mistake(self, text: str) -> None:
        self.broke(PromiseBroken(0, "runs_without_mistakes", text))

    def _outcome(self) -> Outcome:
        self.coverage.faults[STRANGERS] += self.server.unended
        about = self.failure.about if self.failure is not None else None
        return Outcome(
            seed=self.seed,
            broken=self.failure,
            trace=self.trace.lines(about) if self.failure is not None else [],
            faults=self.faults,
            steps=self.scheduler.turns,
            commands=self.commands,
            commits=self.witness.commits,
            seconds=self.now,
            digest=self.scheduler.digest,
            coverage=self.coverage,
        )
