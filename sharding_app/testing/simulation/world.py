"""A cluster on virtual time: real nodes and clients, a faulty network and store, and a judge.

Callers need only `run_seed`. One seed gives one history: all chance comes from it. `phases`
contains the course of events; this module contains the parts of a world, and the services that they
need from it.
"""

from __future__ import annotations

import asyncio
import gc
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

from sharding_app import redaction
from sharding_app.adapters.memory.server import MemoryServer
from sharding_app.entities.gateway import Gateway, use_gateway
from sharding_app.entities.projections import ProjectionType, projections
from sharding_app.entities.registry import registry
from sharding_app.ports.projections import Part
from sharding_app.protocol.direct.company import Others, others_of
from sharding_app.protocol.ids import Incarnation, ShardId, shard_of
from sharding_app.protocol.journals import CLUSTERS_OWN
from sharding_app.runtime.node.node import Node
from sharding_app.runtime.node.process import Process as Asking
from sharding_app.runtime.projections.worker import Making, set_parts
from sharding_app.testing.simulation import workload
from sharding_app.testing.simulation.allocation_checker import Judge, JudgedStrategy
from sharding_app.testing.simulation.beliefs import Beliefs
from sharding_app.testing.simulation.checker import Witness, token_of
from sharding_app.testing.simulation.clients import Client
from sharding_app.testing.simulation.fault_policy import Conditions, slot_of
from sharding_app.testing.simulation.faults import STRANGERS, Fault, schedule, storm
from sharding_app.testing.simulation.final_checks import look_back
from sharding_app.testing.simulation.followers import Followers
from sharding_app.testing.simulation.harness import Stage
from sharding_app.testing.simulation.journals import JournalChecker, journals_of, weights_of
from sharding_app.testing.simulation.loop import Life, Process, SimLoop
from sharding_app.testing.simulation.machines import watched
from sharding_app.testing.simulation.message_checker import deliveries_watched
from sharding_app.testing.simulation.move_seeds import has_moves
from sharding_app.testing.simulation.nemesis import Injector
from sharding_app.testing.simulation.network import CountingNetwork, DirectNetwork
from sharding_app.testing.simulation.obstacles import Obstacles
from sharding_app.testing.simulation.overlaps import Overlaps
from sharding_app.testing.simulation.particular import VirtualGateway
from sharding_app.testing.simulation.phases import PHASES
from sharding_app.testing.simulation.projection_checker import ProjectionChecker
from sharding_app.testing.simulation.projections import FIRST, SECOND, SimPart
from sharding_app.testing.simulation.promises import PromiseBroken
from sharding_app.testing.simulation.registry import Registry
from sharding_app.testing.simulation.scheduler import Scheduler
from sharding_app.testing.simulation.topology import Cast, cast_of
from sharding_app.testing.simulation.trace import Coverage, Trace, listening
from sharding_app.testing.simulation.virtual_node import SHARD_LEASES, VirtualNode

CLIENTS = 2
STATEMENT_SECONDS = 1.3
"""The server gives a statement up a little earlier than its client does."""
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
"""The date at which a world begins, by its server's clock."""
LOOK_EVERY = 8
"""Number of turns from one look at a node to the next: each look takes time."""


@dataclass(slots=True)
class Outcome:
    """The result of a seed."""

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
    seed: int,
    nodes: int = 3,
    faults: list[Fault] | None = None,
    steps: int | None = None,
    *,
    direct: bool = False,
    stormy: bool = False,
) -> Outcome:
    """Run one world to its end. `faults` replaces the seed's own; `steps` ends the run early.

    `direct`: processes talk over direct connections. `stormy`: the seed's faults are a storm.
    """
    return World(seed, nodes, faults, steps, direct=direct, stormy=stormy).run()


class World:
    def __init__(
        self,
        seed: int,
        nodes: int,
        faults: list[Fault] | None,
        steps: int | None,
        cast: Cast | None = None,
        *,
        direct: bool = False,
        stormy: bool = False,
    ) -> None:
        """`cast` replaces the seed's own. `direct`: there is no channel layer. `stormy`: the seed's
        faults are a storm.
        """
        self.seed = seed
        self.size = nodes
        self.cast = cast_of(seed) if cast is None else cast
        self.version = 1
        "Version of the application that is deployed now."
        self.calm = False
        "No fault is going on, and there was none for a while."
        self.scheduler = Scheduler(seed, looks_every=LOOK_EVERY)
        self.coverage = Coverage()
        self.conditions = Conditions(seed, self.coverage.faults)
        self.conditions.direct = direct
        self.trace = Trace(lambda: self.scheduler.now)
        self.server = MemoryServer(
            now=lambda: self.scheduler.now,
            later=self.scheduler.later,
            faults=self.conditions,
            pace=self.conditions.pace,
            cluster_id=f"world{seed}",
            began=BEGAN,
        )
        self._set_up(self.server, self.conditions)
        names = journals_of(seed) if cast is None else ()
        self.conditions_of: dict[str, Conditions] = {CLUSTERS_OWN: self.conditions}
        "By journal: the conditions at its server."
        self.journals = {name: self._journal(name) for name in names}
        "The servers of further journals."
        self.servers = {CLUSTERS_OWN: self.server, **self.journals}
        self.server.cluster.journal_weights = weights_of(names)
        self.network = self._network(direct)
        self.overlaps = Overlaps(self)
        self.beliefs = Beliefs(lambda: self.scheduler.now, SHARD_LEASES.ttl_seconds)
        self.where = JournalChecker(self)
        self.registry = Registry(self)
        self.judge = Judge(self)
        self.strategy = JudgedStrategy(self)
        self.followers = Followers(self)
        self.projections = ProjectionChecker(self)
        self.witness = Witness(self, self.server, self.trace)
        self.network.on_send = self.witness.sent
        self.obstacles = Obstacles(list(self.servers.values()), token_of)
        self.failure: PromiseBroken | None = None
        self.commands = 0
        self.switches = 0
        "Switches of moves that are under way now."
        self.nodes = [VirtualNode(self, number) for number in range(nodes)]
        self.clients = [Client(self, number) for number in range(CLIENTS)]
        self.outside = SimLoop(Process(self.scheduler, "outside"))
        "A loop for jobs that outlive every process of the cluster."
        if faults is None:
            choose = storm if stormy else schedule
            faults = choose(
                seed, nodes, moves=self.cast.moves, whole_protocol=self.cast.whole_protocol, journals=names
            )
        self.faults = faults
        self.injector = Injector(self, seed)
        self._steps = steps
        self._by_process: dict[str, VirtualNode] = {each.name: each for each in self.nodes}

    def _set_up(self, server: MemoryServer, conditions: Conditions) -> None:
        server.ends_others = self.seed % 3 != 1
        server.standby.give_up_seconds = conditions.answer_seconds
        server.statement_seconds = STATEMENT_SECONDS
        server.on_request = self._waited

    def _journal(self, name: str) -> MemoryServer:
        """Make the server of a further journal."""
        conditions = self.conditions_of[name] = self.conditions.of_journal(name)
        server = MemoryServer(
            now=lambda: self.scheduler.now,
            later=self.scheduler.later,
            faults=conditions,
            pace=conditions.pace,
            cluster_id=f"{name} of world{self.seed}",
            began=BEGAN,
        )
        server.system = f"system of {name}"
        self._set_up(server, conditions)
        return server

    def _network(self, direct: bool) -> CountingNetwork:
        messages, later = self.coverage.messages, self.scheduler.later
        if not direct:
            return CountingNetwork(messages, later=later, faults=self.conditions)
        happened = self.coverage.faults
        network = DirectNetwork(
            messages, happened, now=lambda: self.scheduler.now, later=later, faults=self.conditions
        )
        network.others, network.answers = self._others, self._answers
        return network

    def _others(self, incarnation: Incarnation) -> Others:
        if slot_of(incarnation) in self.conditions.cut_off or not self.server.up:
            return Others()
        return others_of(self.server.cluster.with_locks(), incarnation)

    def _answers(self, incarnation: Incarnation, other: Incarnation) -> bool:
        node = self.node_of(other)
        if node is None or self._by_process[node.config.name].process.life is not Life.RUNNING:
            return False
        return self.conditions.answers(incarnation, other)

    def _part_of(self, projection: ProjectionType, journal: str) -> Part:
        node = self.running_node()
        if node is None:
            raise LookupError("a worker of a projection runs in no node")
        return SimPart(self, projection, journal, node.incarnation)

    @property
    def now(self) -> float:
        return self.scheduler.now

    # -- Services for the parts --------------------------------------------------------------------

    def broke(self, error: PromiseBroken) -> None:
        if self.failure is None:
            self.failure = error
            self.trace.note("world", None, "BROKEN %s", error)

    def transition(self, machine: str, before: str, after: str) -> None:
        self.coverage.transitions[machine, before, after] += 1

    def channel_of(self, incarnation: Incarnation) -> str:
        return f"sharding.{self.server.cluster_id}.{incarnation}"

    def running_node(self) -> Node | None:
        """Return the node in whose process the present code runs."""
        loop = asyncio.get_running_loop()
        found = self._by_process.get(loop.process.name) if isinstance(loop, SimLoop) else None
        return found.node if found is not None else None

    def running_process(self) -> Asking | None:
        """Return the node or the caller in whose process the present code runs."""
        loop = asyncio.get_running_loop()
        for each in self.clients:
            if each.loop is loop:
                return each.asking if each.started else None
        return self.running_node()

    def node_of(self, incarnation: Incarnation) -> Node | None:
        """Return the node of an incarnation, if its process lives and it is the present one."""
        for each in self.nodes:
            if each.runs and each.node is not None and each.node.incarnation == incarnation:
                return each.node
        return None

    def shard_of(self, type_name: str, entity_id: str) -> ShardId:
        """Return the entity's shard by the numbers in the server's rows."""
        config = self.server.cluster.types.get(type_name)
        if config is not None:
            return config.numbering.shard_of(entity_id)
        made = next(each for each in self.cast.types if each.name == type_name)
        return shard_of(entity_id, made.settings.number_of_shards or 1)

    def server_of(self, type_name: str, shard: ShardId) -> MemoryServer:
        """Return the server of the journal in which a shard lies."""
        return self.servers[self.where.is_in((type_name, shard))]

    def server_of_entity(self, type_name: str, entity_id: str) -> MemoryServer:
        """Return the server of the journal in which an entity's rows lie."""
        return (
            self.server_of(type_name, self.shard_of(type_name, entity_id)) if self.journals else self.server
        )

    def lies_in(self, server: MemoryServer, type_name: str, entity_id: str) -> bool:
        """Whether an entity's rows in a server are no copy that a move has made or left."""
        return not has_moves(self.seed) or self.server_of_entity(type_name, entity_id) is server

    def is_valid(self, node: Node) -> bool:
        return node.ports.clock.now() < node.lifeline.valid_until

    def lease_ends(self, node: Node) -> float:
        """Return the end of the lease as the node believes in it, by the world's time."""
        process = self._by_process[node.config.name].process
        return (node.lifeline.valid_until - process.offset) / process.rate

    def has_heard(self, node: Node) -> bool:
        """Whether the node knows the server's present lineage."""
        return node.lifeline.lease.lineage == self.server.identity.lineage

    def coordinator(self) -> VirtualNode | None:
        incarnation = self.server.cluster.coordinator.incarnation
        for each in self.nodes:
            if each.runs and incarnation in each.incarnations:
                return each
        return None

    def crash_all(self) -> None:
        """Kill every node at once."""
        for each in self.nodes:
            each.crash()
        self.judge.everything_is_down()

    # -- The run -----------------------------------------------------------------------------------

    def run(self) -> Outcome:
        collects = gc.isenabled()
        gc.disable()
        try:
            with ExitStack() as stack:
                # The text of an error has a length, and lengths move a seed: no project's settings
                # may decide it.
                stack.enter_context(redaction.always())
                stack.enter_context(listening(self.trace, self._mistake))
                stack.enter_context(watched(self.coverage))
                stack.enter_context(deliveries_watched(self))
                stack.enter_context(registry.isolated())
                for each in self.cast.types:
                    registry.add(each)
                stack.enter_context(projections.isolated())
                if self.projections.are_there:
                    projections.add(FIRST)
                    projections.add(SECOND)
                stack.callback(set_parts, set_parts(Making(self._part_of, tuple(self.servers))))
                stack.enter_context(use_gateway(cast(Gateway, VirtualGateway(self))))
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

    def _waited(self, kind: str, before: str, after: str) -> None:
        self.transition(f"request {kind}", before, after)
        self.transition("request", before, after)

    def _after_turn(self, process: str) -> None:
        found = self._by_process.get(process)
        if found is not None and found.node is not None and found.process.life is Life.RUNNING:
            self.witness.look(found.node)
        if not self.scheduler.turns % 256:
            self.witness.look_at_calls()

    def _unhandled(self, process: str, context: dict[str, Any]) -> None:
        detail = f"{process}: {context.get('message')} {context.get('exception')!r}"
        self.broke(PromiseBroken(0, "runs_without_mistakes", detail))

    def _spins(self, process: str, callback: str) -> None:
        detail = f"{process}: {callback} goes on without a pause"
        self.broke(PromiseBroken(14, "nothing_spins", detail))

    def _mistake(self, text: str) -> None:
        self.broke(PromiseBroken(0, "runs_without_mistakes", text))

    def _outcome(self) -> Outcome:
        self.coverage.faults[STRANGERS] += self.server.unended
        for name, conditions in self.conditions_of.items():
            if name != CLUSTERS_OWN:
                for kind, times in conditions.happened.items():
                    self.coverage.faults[f"{kind} of a journal"] += times
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
