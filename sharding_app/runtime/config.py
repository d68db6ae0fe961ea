"""What a process of the cluster is made of: plain values, and the ports behind which the outside lies."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sharding_app.core.allocation import ShardAllocationStrategy
from sharding_app.core.coordinator import CoordinatorSettings
from sharding_app.core.ids import Incarnation
from sharding_app.core.least_shards import LeastShardAllocation
from sharding_app.core.link import LinkLimits
from sharding_app.core.messages import Deliver
from sharding_app.core.records import Decision
from sharding_app.core.recovery_limits import RecoveryLimits
from sharding_app.core.region import RegionLimits
from sharding_app.core.shard_lease import LeaseTerms
from sharding_app.core.wire import WIRE, Wire
from sharding_app.errors import DeclarationError
from sharding_app.ports.clock import Clock
from sharding_app.ports.journal import Journal
from sharding_app.ports.lease import Leases
from sharding_app.ports.store import ClusterStore
from sharding_app.ports.transport import Transport
from sharding_app.runtime.lifeline_types import LifelineCallbacks, LifelineControl
from sharding_app.runtime.listener import Listener, NoListener
from sharding_app.runtime.owner import Together, Watch
from sharding_app.runtime.threads import PlainThreads, Threads


class Region(Protocol):
    """What a region's endpoint hands envelopes to (`runtime.host.Host`)."""

    def receive(self, source: Incarnation, messages: Sequence[Deliver]) -> None: ...


Endpoint = Callable[[Incarnation, Sequence[Deliver]], None]


_DEFAULT_STRATEGY: ShardAllocationStrategy = LeastShardAllocation()


MAX_TEXT_CHARS = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    name: str = ""
    host: str = ""
    pid: int = 0
    roles: tuple[str, ...] = ()
    app_version: str = "0.0.0"
    candidate: bool = True
    number_of_shards: int = 1000
    lease_ttl_seconds: float = 3.0
    ping_interval_seconds: float = 0.5
    "Of each of the lifeline's sessions: so far apart a silent node's two locks may go."
    ask_timeout_seconds: float = 5.0
    mailbox_size: int = 1000
    passivate_after_seconds: float = 120.0
    active_entity_limit: int = 100_000
    "Entities of one type in this node's memory; 0: any number."
    passivation: str = "least-recently-used"
    "Who leaves the memory when there are more: a name in `core.passivation.NAMED`."
    restart_backoff_seconds: float = 10.0
    "A remembered entity that stopped without passivating is started again after so long."
    recovery_rate: tuple[int, float] | None = None
    "Remembered entities are started in groups of this size, with this many seconds between; None: all at once."
    stop_timeout_seconds: float = 10.0
    "An entity that ignores its stop message is stopped by force after so long."
    command_window_seconds: float = 600.0
    max_reply_bytes: int = 256 * 1024
    "Of a command that persists: its reply is kept beside its last event."
    max_state_bytes: int = 16 * 1024 * 1024
    "Of a snapshot, and of a durable-state entity's value."
    max_concurrent_recoveries: int = 1000
    "Entities of all types that are read and rebuilt at a time."
    recovery: RecoveryLimits = field(default_factory=RecoveryLimits)
    echo_interval_seconds: float = 1.0
    deaf_after_seconds: float = 3.0
    step_aside_after_seconds: float = 5.0
    "Without a connection to the journal or the rows, while the lifeline has one."
    region: RegionLimits = field(default_factory=RegionLimits)
    links: LinkLimits = field(default_factory=LinkLimits)
    coordinator: CoordinatorSettings = field(default_factory=CoordinatorSettings)
    wire: Wire = WIRE
    "What this release reads and writes; another one only in tests."
    steering_keys: tuple[bytes, ...] = ()
    "They sign operators' wishes; none: every wish is followed."
    unguarded: bool = False
    "There are no keys, and this is no development server: what cannot be taken back is refused."
    shard_leases: LeaseTerms = field(default_factory=LeaseTerms)
    strategy_of: Callable[[str], ShardAllocationStrategy] = lambda _: _DEFAULT_STRATEGY

    def __post_init__(self) -> None:
        """Refuse what would burden all others: each of them reads every node's row, several times a second."""
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
    """Where there is nothing to take leases from."""
    raise LookupError(f"there are no leases here ({path!r})")


class NoWatch:
    """Where nothing watches the loop."""

    running: tuple[str, str] | None = None
    recovering: tuple[str, str] | None = None


@dataclass(slots=True, kw_only=True)
class ProcessPorts:
    """What every process needs."""

    store: ClusterStore
    transport: Transport
    clock: Clock


@dataclass(slots=True, kw_only=True)
class NodePorts(ProcessPorts):
    """What a process needs that hosts entities."""

    journal: Journal
    lifeline: Callable[[str, LifelineCallbacks], LifelineControl]
    "Makes the lifeline of this incarnation, given the cluster's id."
    endpoint: Callable[[Region, str], Endpoint] | None = None
    "Makes the region endpoint of a type on the node's channel; None: envelopes go straight in."
    leases: Callable[[str], Leases] = no_leases
    "Makes the leases of this incarnation, given what `use_lease` says."
    watch: Watch = field(default_factory=NoWatch)
    together: Together | None = None
    "Appends in one transaction with a user's own writes; None: there is no database to do it in."
    on_decision: Callable[[Decision], None] = lambda _: None
    listener: Listener = field(default_factory=NoListener)
    "Told of nodes, coordinators, shards and failures."
    threads: Threads = field(default_factory=PlainThreads)
    "What is around handlers that leave the loop."
