"""One slot of the cluster: a virtual process that runs a node, dies, and starts again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sharding_app.adapters.memory.journal import MemoryJournal
from sharding_app.adapters.memory.leases import MemoryLeases
from sharding_app.adapters.memory.lifeline import MemoryLifelineSession
from sharding_app.adapters.memory.sessions import Session
from sharding_app.adapters.memory.store import MemoryStore
from sharding_app.adapters.memory.transport import MemoryTransport
from sharding_app.ports.lifeline import LifelineSession
from sharding_app.protocol.delivery.deliveries import BackOff
from sharding_app.protocol.ids import Incarnation
from sharding_app.protocol.link.link import LinkLimits
from sharding_app.protocol.liveness.locks import lifeline_keys
from sharding_app.protocol.liveness.node_lease import Lease
from sharding_app.protocol.liveness.shard_lease import LeaseTerms
from sharding_app.protocol.recovery_limits import RecoveryLimits
from sharding_app.protocol.region import RegionLimits
from sharding_app.runtime.base.config import DeliverySettings, LifelineSettings, NodeConfig, NodePorts
from sharding_app.runtime.base.interfaces import LifelineCallbacks, LifelineControl
from sharding_app.runtime.node.node import Node
from sharding_app.runtime.node.runner import NodeRunner
from sharding_app.testing.chance import by_name
from sharding_app.testing.simulation.beside import LifelineBeside, VirtualHeart
from sharding_app.testing.simulation.loop import Life, Process, SimLoop
from sharding_app.testing.simulation.own_rows import VirtualTogether
from sharding_app.testing.simulation.promises import PromiseBroken
from sharding_app.testing.simulation.registry import Told

if TYPE_CHECKING:
    from sharding_app.testing.simulation.world import World

TTL_SECONDS = 3.0
OWN_LIMIT_SECONDS = 2.0
STALL_SECONDS = 5.0
LIFELINE = LifelineSettings(loop_stall_limit_seconds=STALL_SECONDS, chance=by_name)
DRIFT = 0.04
LEAVE_SECONDS = 6.0
STEP_ASIDE_SECONDS = 5.0
ASK_SECONDS = 4.0
WINDOW_SECONDS = 8.0
"""Time for which a command's id is remembered: shorter than the longest outage of the layer."""
MAILBOX = 5
REGION = RegionLimits(max_calls=16, max_bytes=100_000)
LINKS = LinkLimits(
    max_frame_bytes=500,
    max_message_bytes=1500,
    window_bytes=1500,
    window_frames=16,
    max_queue_messages=24,
    max_flight_seconds=3.0,
    idle_after_seconds=5.0,
    suspect_after_seconds=0.06,
    halve_messages=3,
)
RECOVERY = RecoveryLimits(batch_entities=8, batch_events=5, batch_rows=20, page_events=3)
"""So small that most histories are read in pages."""
RESTART_BACKOFF_SECONDS = 1.0
DELIVERIES = DeliverySettings(
    back_off=BackOff(failures=3, first_seconds=0.2, most_seconds=1.0, again_most_seconds=2.0),
    max_rows=8,
    horizon_seconds=0.3,
    answer_seconds=3.0,
    most_under_way=4,
    net_seconds=5.0,
    overdue_seconds=2.0,
)
"""So little room that rows are read in pages, and so short a sight that most timers and all that is
set aside leave the memory."""
SHARD_LEASES = LeaseTerms(ttl_seconds=4.0, renew_seconds=1.0, retry_seconds=0.3, answer_seconds=1.0)


def connections_of(seed: int) -> int:
    """Return the number of connections for appends of each node: several in two seeds of four, an
    odd one and an even one.
    """
    return 3 if seed % 4 in (1, 2) else 1


class SimClock:
    """`ports.clock.Clock` of a virtual process."""

    def __init__(self, process: Process) -> None:
        self.now = process.time


def config_of(world: World, name: str, number: int = -1, version: int = 1) -> NodeConfig:
    cast, nodes = world.cast, world.size
    return NodeConfig(
        name=name,
        roles=cast.roles(number) if number >= 0 else (),
        app_version=f"{version}.0",
        lease_ttl_seconds=TTL_SECONDS,
        step_aside_after_seconds=STEP_ASIDE_SECONDS,
        ask_timeout_seconds=ASK_SECONDS,
        command_window_seconds=WINDOW_SECONDS,
        mailbox_size=MAILBOX,
        region=REGION,
        links=LINKS,
        coordinator=cast.coordinator(nodes),
        restart_backoff_seconds=RESTART_BACKOFF_SECONDS,
        recovery_rate=cast.recovery_rate,
        recovery=RECOVERY,
        shard_leases=SHARD_LEASES,
        deliveries=DELIVERIES,
        strategy_of=lambda _: world.strategy,
    )


class VirtualNode:
    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.name = f"n{number}"
        self.version = 1
        "Version of the application at its next start."
        self.process: Process
        self._beside: SimLoop
        "The loop of its lifeline."
        self.runner: NodeRunner | None = None
        self.incarnations: list[Incarnation] = []
        "Incarnations of the present process."
        self.is_leaving = False
        self._runs = 0

    @property
    def node(self) -> Node | None:
        """The present incarnation; of a dead process, the last one."""
        return None if self.runner is None else self.runner.node

    @property
    def runs(self) -> bool:
        return hasattr(self, "process") and self.process.life is not Life.CRASHED

    @property
    def is_up(self) -> bool:
        return self.runs and self.node is not None and self.node.state == "up"

    def boot(self) -> None:
        """Start the process, unless it runs already."""
        if self.runs:
            return
        random = self.world.scheduler.random
        self.process = Process(
            self.world.scheduler,
            self.name,
            rate=1 + random.uniform(-DRIFT, DRIFT),
            offset=random.uniform(0, 10_000),
        )
        self.is_leaving = False
        self.incarnations = []
        self.runner = None
        loop = SimLoop(self.process)
        self._beside = SimLoop(self.process)
        loop.call_soon(self._begin, loop)

    def _begin(self, loop: SimLoop) -> None:
        runner = self.runner = NodeRunner(
            config_of(self.world, self.name, self.number, self.version),
            list(self.world.cast.types),
            self._ports,
            self._next_incarnation,
        )
        loop.create_task(self._live(runner), name=f"{self.name} lives")

    def crash(self) -> None:
        """kill -9.

        The kernel closes the sockets a few milliseconds later, in the middle of anything.
        """
        if not self.runs:
            return
        self.process.crash()
        self.world.trace.note(self.name, None, "killed")
        for incarnation in self.incarnations:
            self.world.network.receivers.pop(f"sharding.{self.world.server.cluster_id}.{incarnation}", None)
            self.world.witness.abandoned(incarnation)
            self.world.scheduler.later(
                self.world.scheduler.random.uniform(0.001, 0.004),
                lambda name=incarnation: self._sockets_close(name),  # type: ignore[misc]
            )

    def _sockets_close(self, incarnation: Incarnation) -> None:
        for server in self.world.servers.values():
            server.client_died(incarnation)

    def lifelines(self) -> list[Session]:
        """Return the server's ends of its lifeline sessions, as far as they exist."""
        server = self.world.server
        sessions = (each for incarnation in self.incarnations for each in server.sessions.of(incarnation))
        return [each for each in sessions if each.idle_timeout is not None]

    def lose_lifelines(self) -> None:
        """End both lifelines towards the server alone."""
        sessions = self.lifelines()
        for each in sessions:
            self.world.server.sessions.lose(each)
        self.world.overlaps.begins(sessions[-1].client)

    def leave(self) -> None:
        """SIGTERM: stop in order, then exit."""
        if self.runs and not self.is_leaving and self.runner is not None:
            self.is_leaving = True
            self.process.loops[0].call_soon_threadsafe(self.runner.request_stop, LEAVE_SECONDS)

    async def _live(self, runner: NodeRunner) -> None:
        try:
            await runner.run()
        except Exception as error:  # noqa: BLE001  (whatever it is, it is a mistake of ours)
            self.world.broke(PromiseBroken(0, "runs_without_mistakes", f"{self.name}: {error!r}"))
        self.world.trace.note(self.name, None, "exits")
        self.crash()

    def _next_incarnation(self) -> Incarnation:
        self._runs += 1
        self.incarnations.append(f"{self.name}-{self._runs}")
        return self.incarnations[-1]

    def _ports(self, incarnation: Incarnation) -> NodePorts:
        server, clock = self.world.server, SimClock(self.process)
        journal = MemoryJournal(server, incarnation, connections=connections_of(self.world.seed))

        def lifeline(cluster_id: str, callbacks: LifelineCallbacks) -> LifelineControl:
            sessions: tuple[LifelineSession, LifelineSession] = (
                MemoryLifelineSession(server, incarnation, idle_timeout_seconds=TTL_SECONDS),
                MemoryLifelineSession(server, incarnation, idle_timeout_seconds=TTL_SECONDS),
            )
            keys = lifeline_keys(cluster_id, incarnation)
            lease = Lease(OWN_LIMIT_SECONDS, TTL_SECONDS)
            heart = VirtualHeart(self.process, lambda: self.world.transition("loop", "blocked", "given up"))
            return LifelineBeside(
                self._beside, sessions, clock, lease, keys, incarnation, LIFELINE, callbacks, heart
            )

        journals = {
            name: MemoryJournal(each, incarnation, connections=connections_of(self.world.seed))
            for name, each in self.world.journals.items()
        }
        return NodePorts(
            store=MemoryStore(server, incarnation),
            transport=MemoryTransport(self.world.network, incarnation),
            clock=clock,
            date=server.date,
            journal=journal,
            journals=journals,
            lifeline=lifeline,
            together=VirtualTogether(self.world, incarnation, journal, server),
            leases=lambda _: self.world.beliefs.of(
                MemoryLeases(server, incarnation, SHARD_LEASES, TTL_SECONDS), incarnation, clock.now
            ),
            listener=Told(self.world.registry, incarnation),
        )
