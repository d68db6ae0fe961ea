"""The configuration of a process: plain values, and the ports to the outside."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from random import SystemRandom

from sharding_app.errors import DeclarationError
from sharding_app.ports.clock import Clock
from sharding_app.ports.journal import Journal
from sharding_app.ports.lease import Leases
from sharding_app.ports.store import ClusterStore
from sharding_app.ports.transport import Endpoint, EnvelopeSink, Transport
from sharding_app.protocol.allocation.least_shards import LeastShardAllocation
from sharding_app.protocol.allocation.strategy import ShardAllocationStrategy
from sharding_app.protocol.coordinator.settings import CoordinatorSettings
from sharding_app.protocol.delivery.deliveries import HORIZON_SECONDS, BackOff
from sharding_app.protocol.ids import Incarnation
from sharding_app.protocol.link.link import LinkLimits
from sharding_app.protocol.liveness.shard_lease import LeaseTerms
from sharding_app.protocol.records import Decision
from sharding_app.protocol.recovery_limits import RecoveryLimits
from sharding_app.protocol.region import RegionLimits
from sharding_app.protocol.versions import WIRE, Wire
from sharding_app.runtime.base.clock import utc_now
from sharding_app.runtime.base.interfaces import (
    LifelineCallbacks,
    LifelineControl,
    Listener,
    NoListener,
    Together,
    Watch,
)
from sharding_app.runtime.base.threads import PlainThreads, Threads

_DEFAULT_STRATEGY: ShardAllocationStrategy = LeastShardAllocation()


MAX_TEXT_CHARS = 255

_CHANCE = SystemRandom()
"""Not the one that a project may seed: with one seed all nodes would draw the same."""


def by_chance(incarnation: Incarnation, session: int, failures: int) -> float:
    """Return a number from 0 to 1 that no other node draws too."""
    return _CHANCE.random()


@dataclass(frozen=True, slots=True, kw_only=True)
class LifelineSettings:
    ping_interval_seconds: float = 0.5
    answer_timeout_seconds: float = 2.0
    "A session that has not answered for this long is closed: its renewal has lapsed by then."
    open_timeout_seconds: float = 3.0
    retry_seconds: float = 0.05
    "Back-off after a loss. It doubles up to `retry_max_seconds`, less up to a half, by `chance`."
    retry_max_seconds: float = 0.6
    chance: Callable[[Incarnation, int, int], float] = by_chance
    """What shortens a back-off: 0 to 1, for a node, one of its two sessions, and the number of its
    attempts that have failed. Virtual clusters draw it from these, so that a history can be
    repeated.
    """
    quick_interval_seconds: float = 0.02
    quick_for_seconds: float = 1.0
    loop_stall_limit_seconds: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliverySettings:
    back_off: BackOff = field(default_factory=BackOff)
    max_rows: int = 10_000
    "Messages and timers in a node's memory; the others are read when there is room."
    max_bytes: int = 32 * 1024 * 1024
    horizon_seconds: float = HORIZON_SECONDS
    answer_seconds: float = 30.0
    "Time after which a delivery without an answer is repeated."
    most_under_way: int = 2000
    "Deliveries of a node that are under way at the same time."
    net_seconds: float = 30.0
    "Between two looks at what is overdue: no word of it may have come."
    overdue_seconds: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    name: str = ""
    host: str = ""
    pid: int = 0
    roles: tuple[str, ...] = ()
    app_version: str = ""
    candidate: bool = True
    number_of_shards: int = 1000
    lease_ttl_seconds: float = 3.0
    ping_interval_seconds: float = 0.5
    "Of each lifeline session. A silent node's two locks may vanish this far apart."
    ask_timeout_seconds: float = 5.0
    mailbox_size: int = 1000
    passivate_after_seconds: float = 120.0
    active_entity_limit: int = 100_000
    "Entities of one type in this node's memory; 0: no limit."
    passivation: str = "least-recently-used"
    """The strategy that picks the entities to leave memory: a name in
    `protocol.passivation.strategy.NAMED`.
    """
    restart_backoff_seconds: float = 10.0
    "Delay before a remembered entity that stopped without passivating starts again."
    recovery_rate: tuple[int, float] | None = None
    """Size of the groups in which remembered entities start, and seconds between them; None: all at
    once.
    """
    stop_timeout_seconds: float = 10.0
    "Delay before an entity that ignores its stop message is stopped by force."
    command_window_seconds: float = 600.0
    retention_interval_seconds: float = 600.0
    max_reply_bytes: int = 256 * 1024
    "Of a command that persists: its reply is stored with its last event."
    max_state_bytes: int = 16 * 1024 * 1024
    "Of a snapshot, and of a durable-state entity's value."
    max_concurrent_recoveries: int = 1000
    "Entities of all types that are read and rebuilt at the same time."
    recovery: RecoveryLimits = field(default_factory=RecoveryLimits)
    echo_interval_seconds: float = 1.0
    deaf_after_seconds: float = 3.0
    step_aside_after_seconds: float = 5.0
    "Time without a connection to the journal or the rows, while the lifeline has one."
    region: RegionLimits = field(default_factory=RegionLimits)
    links: LinkLimits = field(default_factory=LinkLimits)
    coordinator: CoordinatorSettings = field(default_factory=CoordinatorSettings)
    wire: Wire = WIRE
    "Versions that this release reads and writes. Only tests set others."
    steering_keys: tuple[bytes, ...] = ()
    "Keys that sign operators' requests; none: every request is followed."
    unguarded: bool = False
    """There are no keys and this is no development server: requests that cannot be undone are
    refused.
    """
    shard_leases: LeaseTerms = field(default_factory=LeaseTerms)
    deliveries: DeliverySettings = field(default_factory=DeliverySettings)
    check_state: bool = False
    "Find state that is changed outside of appliers: in development and in tests."
    followers: int = 20_000
    "Questions of followers that may wait on a node, and entities that a process may follow."
    strategy_of: Callable[[str], ShardAllocationStrategy] = lambda _: _DEFAULT_STRATEGY

    def __post_init__(self) -> None:
        """Refuse oversized texts: every node reads this row several times a second."""
        for what, text in (
            ("name", self.name), ("host", self.host), ("app_version", self.app_version),
            *(("role", each) for each in self.roles),
        ):  # fmt: skip
            if len(text) > MAX_TEXT_CHARS or not text.isprintable():
                raise DeclarationError(
                    f"the {what} of a node is printable and has at most {MAX_TEXT_CHARS} characters, this one has"
                    f" {len(text)}: {text[:40]!a}"
                )


def no_leases(path: str) -> Leases:
    """Raise an error: there is no source of leases."""
    raise LookupError(f"there are no leases here ({path!r})")


class NoWatch:
    """The watchdog of processes that have none."""

    running: tuple[str, str] | None = None
    recovering: tuple[str, str] | None = None
    lag_seconds = 0.0
    worst_lag_seconds = 0.0
    blocked = 0

    def take_lag_seconds(self) -> float:
        return 0.0


@dataclass(slots=True, kw_only=True)
class ProcessPorts:
    """The ports of every process."""

    store: ClusterStore
    transport: Transport
    clock: Clock

    async def close(self) -> None:
        await self.transport.close()
        await self.store.close()


@dataclass(slots=True, kw_only=True)
class NodePorts(ProcessPorts):
    """The ports of a process that hosts entities."""

    journal: Journal
    "In the cluster's own database."
    lifeline: Callable[[str, LifelineCallbacks], LifelineControl]
    "Makes the lifeline of this incarnation, given the cluster's id."
    journals: Mapping[str, Journal] = field(default_factory=dict)
    "The further journals, by the alias of their database."
    endpoint: Callable[[EnvelopeSink, str], Endpoint] | None = None
    """Makes the region endpoint of a type on the node's channel; None: envelopes are passed
    directly.
    """
    leases: Callable[[str], Leases] = no_leases
    "Makes the leases of this incarnation, given the value of `use_lease`."
    watch: Watch = field(default_factory=NoWatch)
    date: Callable[[], datetime] = utc_now
    "The date that handlers are told."
    together: Together | None = None
    "Appends in one transaction with the user's own writes; None: there is no database."
    on_decision: Callable[[Decision], None] = lambda _: None
    listener: Listener = field(default_factory=NoListener)
    "Notified of nodes, coordinators, shards and failures."
    threads: Threads = field(default_factory=PlainThreads)
    "Surrounds handlers that leave the loop."

    async def close(self) -> None:
        await super(NodePorts, self).close()  # a class with slots is another one than `super()` knows
        for journal in (self.journal, *self.journals.values()):
            await journal.close()
        await self.threads.close()
        if self.together is not None:
            await self.together.close()
