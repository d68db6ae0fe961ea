"""A cluster on virtual time: real nodes and clients, a faulty network and store, a workload, and a judge.

    boot ──all up──> turmoil: faults and commands ──all calls ended──> quiet: everything works again
         ──every entity answers, every shard has a live home──> a deaf node
         ──whole protocol: a rolling restart under load without one failed call ──> all down and up again, no message──
         ──> no coordinator ──> stop in order

`run_seed` is all that callers need. One seed gives one history: whatever is left to chance comes from it.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from random import Random
from typing import Any

from sharding_app.adapters.memory.server import COORDINATOR_LOCK, MemoryServer
from sharding_app.core.ids import Incarnation, shard_of
from sharding_app.errors import BufferFull
from sharding_app.runtime.node import Node
from sharding_app.simulation import workload
from sharding_app.simulation.cast import Named, cast_of
from sharding_app.simulation.clients import Caller, Client
from sharding_app.simulation.conditions import Conditions
from sharding_app.simulation.faults import Fault, schedule
from sharding_app.simulation.injector import Injector
from sharding_app.simulation.judge import Judge, JudgedStrategy
from sharding_app.simulation.loop import SimLoop
from sharding_app.simulation.machines import watched
from sharding_app.simulation.network import CountingNetwork
from sharding_app.simulation.promises import PromiseBroken, check_history
from sharding_app.simulation.registry import Registry
from sharding_app.simulation.scheduler import Life, Scheduler
from sharding_app.simulation.trace import Coverage, Trace, listening
from sharding_app.simulation.virtual_node import VirtualNode
from sharding_app.simulation.witness import Witness

CLIENTS = 2
USERS_OF_A_CLIENT = 3
POLITE_USERS_OF_A_CLIENT = 2
CALLS_OF_A_USER = 26
CALLS_OF_A_NODE = 12
BOOT_SECONDS = 20.0
TURMOIL_SECONDS = 180.0
HEALED_SECONDS = 20.0
CALM_SECONDS = 5.0
QUIET_SECONDS = 2.0
STOP_SECONDS = 30.0
RESTS = 15
LATE_SECONDS = 2.0
DEPLOY_SECONDS = 90.0
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
        self.network = CountingNetwork(
            self.coverage.messages, later=self.scheduler.later, faults=self.conditions
        )
        self.registry = Registry(self)
        self.judge = Judge(self)
        self.strategy = JudgedStrategy(self)
        self.witness = Witness(self, self.server, self.trace)
        self.network.on_send = self.witness.sent
        self.failure: PromiseBroken | None = None
        self.commands = 0
        self.nodes = [VirtualNode(self, number) for number in range(nodes)]
        self.clients = [Client(self, number) for number in range(CLIENTS)]
        if faults is None:
            faults = schedule(seed, nodes, moves=self.cast.moves, whole_protocol=self.cast.whole_protocol)
        self.faults = faults
        self.injector = Injector(self, seed)
        self._steps = steps
        self._busy = 0
        "Jobs of the present phase that have not ended."
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

    def is_valid(self, node: Node) -> bool:
        return node.ports.clock.now() < node.lifeline.valid_until

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
                self._phases()
                outcome = self._outcome()
                workload.observer = None
                self.scheduler.close()
        finally:
            workload.observer = None
            if collects:
                gc.enable()
        return outcome

    def _phases(self) -> None:
        for phase in (
            self._boot,
            self._turmoil,
            self._quiet,
            self._deafness,
            self._deployment,
            self._all_down_and_up,
            self._no_coordinator,
            self._stop,
        ):
            if self.failure is not None or self._over():
                return
            self.trace.note("world", None, "PHASE %s", phase.__name__.strip("_"))
            phase()
        if self.failure is None and not self._over():
            self._judge_history()

    def _boot(self) -> None:
        self._boot_all()
        for client in self.clients:
            client.boot()
        self._until(
            lambda: all(hasattr(each, "process") and each.is_up for each in self.nodes)
            and all(client.started for client in self.clients),
            BOOT_SECONDS, "every node comes up",
        )  # fmt: skip
        for entity in self.cast.silent:
            self._job(self.clients[0].loop, self.clients[0].reach(entity))

    def _boot_all(self) -> None:
        """Where a minimum is wanted, one comes late: what is asked meanwhile has to wait."""
        for each in self.nodes:
            late = LATE_SECONDS if self.cast.whole_protocol and each.number == 0 else 0.0
            self.scheduler.later(late + self.scheduler.random.random() * 0.5, each.boot)

    def _turmoil(self) -> None:
        self.injector.plan([fault._replace(at=fault.at) for fault in self.faults])
        for client in self.clients:
            for user in range(USERS_OF_A_CLIENT):
                random = Random(f"user {self.seed} {client.name} {user}")  # noqa: S311
                self._job(client.loop, client.caller.use(random, CALLS_OF_A_USER))
        if self.cast.whole_protocol:
            self._job(self.clients[1].loop, self._wake_and_rest(self.clients[1]))
        # A user of a node lives on a process of his own, so that he outlives the node; his calls do not.
        for each in self.nodes:
            self._job(self.clients[0].loop, self._use_node(each))
        self._until(lambda: not self._busy and not self.injector.pending, TURMOIL_SECONDS, "all calls end")

    async def _wake_and_rest(self, client: Client) -> None:
        """Have remembered entities go to rest, and wake them up again, one soon after the other."""
        random = Random(f"restless {self.seed}")  # noqa: S311
        restless = [each for each in self.cast.entities if each[0].settings.remember_entities]
        for _ in range(RESTS):
            await asyncio.sleep(random.random() * 0.4)
            entity = random.choice(restless)
            for command in ("rest", "total", "rest", "add"):
                await client.caller.call(client.asking, entity, command, 0.5)

    async def _use_node(self, node: VirtualNode) -> None:
        """Have calls made inside of a node's process, on its own loop."""
        random = Random(f"user {self.seed} {node.name}")  # noqa: S311
        caller = Caller(self, node.name, lambda: node.node if node.is_up else None)
        for _ in range(CALLS_OF_A_NODE):
            await asyncio.sleep(random.random())
            if node.is_up and not node.process.stopped:
                loop = node.process.loops[0]
                loop.call_soon_threadsafe(_start, loop, caller.use(random, 1))

    def _quiet(self) -> None:
        """Promise 10: it heals by itself."""
        self.conditions.heal()
        self.server.start()
        for each in self.nodes:
            if each.runs:
                each.process.resume()
            else:
                each.boot()
        for client in self.clients:
            client.process.resume()
        self._runs_without_a_message("after all that")
        self._reach_all("every entity answers again", HEALED_SECONDS)
        self._settle("every shard has a live home, every node is up")

    def _deafness(self) -> None:
        """Promise 13, in some seeds: a deaf node steps aside, and comes back as another incarnation."""
        if self.seed % 5:
            return
        node = self.nodes[self.scheduler.random.randrange(len(self.nodes))]
        former = node.incarnations[-1]
        self.conditions.deaf[node.name] = None
        self.trace.note("world", None, "%s is deaf", former)

        def aside() -> bool:
            rows = self.server.cluster
            return rows.coordinator.incarnation != former and all(
                row.home != former for row in rows.shards.values()
            )

        self._until(aside, 12.0, "a deaf node gives up coordinator and shards", promise=13)
        self.conditions.heal()
        self._settle("it heals after deafness")

    def _deployment(self) -> None:
        """A rolling restart in calm, under load: no call fails, nothing is moved while versions are mixed."""
        if not self.cast.whole_protocol:
            return
        self.calm = True
        for client in self.clients:
            for user in range(POLITE_USERS_OF_A_CLIENT):
                random = Random(f"polite {self.seed} {client.name} {user}")  # noqa: S311
                self._job(client.loop, self._use_politely(client, random))
        self.injector.roll(0.3)
        self._until(lambda: not self._busy and not self.injector.pending, DEPLOY_SECONDS, "a deployment ends")
        self._until(
            lambda: self._settled() and self._is_balanced(), HEALED_SECONDS, "balanced after a deployment"
        )
        self.calm = False

    async def _use_politely(self, client: Client, random: Random) -> None:
        """Call and wait for the answer, while there is a deployment."""
        calls = 0
        while self.injector.pending or not calls:
            calls += 1
            await asyncio.sleep(random.random() * 0.3)
            entity = random.choice(self.cast.entities)
            call = await client.caller.call(client.asking, entity, random.choice(("add", "add", "total")))
            # Behind a singleton's proxy few may wait: the oldest is told, as it should be.
            full = isinstance(call.error, BufferFull) and entity[0].waiting_limit is not None
            if call.error is not None and not full:
                detail = f"{call.command} failed in a rolling restart: {call.error!r}"
                self.broke(PromiseBroken(10, "nothing_fails_in_a_deployment", detail, call.entity))

    def _all_down_and_up(self) -> None:
        """Everything stops, by a power failure or in order; what is remembered runs again without a message."""
        if not self.cast.whole_protocol:
            return
        client = self.clients[0]
        resting = next(each for each in self.cast.entities if each[0].settings.remember_entities)
        self._job(client.loop, client.send_to_rest(resting))
        self._until(
            lambda: not self._busy and not self.registry.is_stored(*resting),
            CALM_SECONDS,
            "an entity goes to rest",
        )
        self.registry.at_rest[resting] = None
        if self.seed % 4 == 1:
            self.crash_all()
        else:
            for each in self.nodes:
                each.leave()
            self._until(lambda: not any(each.runs for each in self.nodes), STOP_SECONDS, "all stop in order")
            self.judge.everything_is_down()
        self.trace.note("world", None, "everything is down")
        self.scheduler.run(until=lambda: self.failure is not None, deadline=self.now + 0.2)
        self.calm = True
        self._boot_all()
        self._until(lambda: all(each.is_up for each in self.nodes), BOOT_SECONDS, "every node comes up again")
        self._runs_without_a_message("after a restart of everything")
        self.scheduler.run(until=lambda: self.failure is not None, deadline=self.now + QUIET_SECONDS)
        if self.failure is None and (wrong := self.registry.running_at_rest()):
            self.broke(PromiseBroken(0, "rests_until_it_is_asked", f"{', '.join(wrong)} run again"))
        self.registry.at_rest.clear()
        self._reach_all("every entity answers after a restart of everything", HEALED_SECONDS)
        self._settle("every shard has a live home again")
        self.calm = False

    def _runs_without_a_message(self, when: str) -> None:
        self._until(lambda: not self.registry.missing(), HEALED_SECONDS, f"what should run runs {when}")
        if self.failure is not None and self.failure.name == "liveness" and (gone := self.registry.missing()):
            self.trace.note("world", None, "does not run: %s", ", ".join(gone))

    def _no_coordinator(self) -> None:
        """Promise 6: known homes go on while there is no coordinator."""
        self._reach_all("every entity answers before", HEALED_SECONDS)
        coordinator = self.server.cluster.coordinator.incarnation
        operator = self.server.connect("operator")
        holder = self.server.sessions.holder(COORDINATOR_LOCK)
        if self.failure is None and holder is not None:
            self.server.sessions.end(holder)
        self.server.sessions.lock(operator, COORDINATOR_LOCK)
        self.trace.note("world", None, "%s is deposed, nobody can be elected", coordinator)
        self._until(
            lambda: all(each.node is None or each.node.coordinator is None for each in self.nodes),
            3.0, "the former coordinator stands down", promise=7,
        )  # fmt: skip
        self.scheduler.run(until=lambda: self.failure is not None, deadline=self.now + 0.2)
        at_home = [each for each in self.cast.entities if self._is_at_home(each)]
        self._reach_all("known homes go on without a coordinator", CALM_SECONDS, at_home, promise=6)
        self.server.sessions.end(operator)

    def _stop(self) -> None:
        for each in self.nodes:
            each.leave()
        self._until(lambda: not any(each.runs for each in self.nodes), STOP_SECONDS, "nodes stop in order")
        if self.failure is None and self.server.cluster.members:
            left = ", ".join(self.server.cluster.members)
            self.broke(PromiseBroken(10, "leaves_nothing_behind", f"rows of {left}"))
        for client in self.clients:
            self._job(client.loop, client.asking.close())
        self._until(lambda: not self._busy, STOP_SECONDS, "clients stop in order")

    def _judge_history(self) -> None:
        try:
            ended = [call for call in self.witness.calls if call.ended is not None]
            check_history(ended, self.witness.journal)
            for key, committed in self.server.journal.events.items():
                entity = f"{self.witness.name_of(key[0])}/{key[1]}"
                if [each.row.seq for each in committed.values()] != [
                    entry.seq for entry in self.witness.journal[entity]
                ]:
                    raise PromiseBroken(
                        3, "acknowledged_is_stored", "the journal has forgotten events", entity
                    )
        except PromiseBroken as error:
            self.broke(error)

    # -- Inside ----------------------------------------------------------------------------------------------------

    def _settle(self, what: str) -> None:
        """Let what is under way come to its end, and look that it has."""
        self.scheduler.run(until=lambda: self.failure is not None, deadline=self.now + QUIET_SECONDS)
        self._until(self._settled, HEALED_SECONDS, what)

    def _is_at_home(self, entity: Named) -> bool:
        """Whether its shard is not on its way from one home to another."""
        entity_type, entity_id = entity
        key = entity_type.name, shard_of(entity_id, entity_type.settings.number_of_shards or 1)
        return self.server.cluster.shards[key].step == "home"

    def _reach_all(
        self,
        what: str,
        seconds: float,
        entities: Sequence[Named] | None = None,
        promise: int = 10,
    ) -> None:
        for client in self.clients:
            for entity in self.cast.entities if entities is None else entities:
                self._job(client.loop, client.reach(entity))
        self._until(lambda: not self._busy, seconds, what, promise)

    def _settled(self) -> bool:
        """Every node is up, and every shard runs where its row says."""
        if not all(each.is_up for each in self.nodes):
            return False
        for row in self.server.cluster.shards.values():
            node = self.node_of(row.home) if row.home is not None else None
            if node is None or row.step != "home" or not self.is_valid(node):
                return False
            shard = node.hosts[row.type].shards.get(row.shard)
            if shard is None or shard.epoch != row.epoch:
                return False
        return True

    def _is_balanced(self) -> bool:
        """No region has two shards more than another one, of the types that the strategy places."""
        members = self.server.cluster.members.values()
        for made in self.cast.types:
            if made.singleton_id is None:
                has = {each.incarnation: 0 for each in members if made.name in each.types}
                for row in self.server.cluster.shards.values():
                    if row.type == made.name and row.home in has:
                        has[row.home] += 1
                if has and max(has.values()) - min(has.values()) > 1:
                    return False
        return True

    def _job(self, loop: SimLoop, job: Coroutine[Any, Any, None]) -> None:
        self._busy += 1
        loop.create_task(job).add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._busy -= 1
        if not task.cancelled() and (error := task.exception()) is not None:
            self.broke(PromiseBroken(0, "runs_without_mistakes", f"a client failed: {error!r}"))

    def _until(self, condition: Callable[[], bool], seconds: float, what: str, promise: int = 10) -> None:
        if self.failure is not None:
            return
        done = self.scheduler.run(
            until=lambda: self.failure is not None or condition() or self._over(), deadline=self.now + seconds
        )
        if not done:
            self.broke(PromiseBroken(promise, "liveness", f"not within {seconds:g} s: {what}"))

    def _over(self) -> bool:
        return self._steps is not None and self.scheduler.turns >= self._steps

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

    def _mistake(self, text: str) -> None:
        self.broke(PromiseBroken(0, "runs_without_mistakes", text))

    def _outcome(self) -> Outcome:
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


def _start(loop: SimLoop, job: Coroutine[Any, Any, None]) -> None:
    loop.create_task(job)
