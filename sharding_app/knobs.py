"""All keys of `SHARDING`: type, default, bounds and what each one does. `sharding_app.conf` reads them.

Defaults that a machine has itself are taken from there, so that each stands in one place. `docs/settings.md` holds
the table of these texts.
"""

import dataclasses
import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

from sharding_app.core.allocation import ShardAllocationStrategy
from sharding_app.core.coordinator import CoordinatorSettings
from sharding_app.core.least_shards import LeastShardAllocation
from sharding_app.core.least_shards_old import ThresholdAllocation
from sharding_app.core.link_limits import LinkLimits
from sharding_app.core.passivation import NAMED
from sharding_app.core.recovery_limits import RecoveryLimits
from sharding_app.core.region import RegionLimits
from sharding_app.core.shard_lease import LeaseTerms
from sharding_app.model.settings import ShardingSettings
from sharding_app.runtime.config import NodeConfig
from sharding_app.runtime.lifeline_types import LifelineSettings

_COORDINATOR = CoordinatorSettings()
_LIFELINE = LifelineSettings()
_LINK = LinkLimits()
_NODE = NodeConfig()
_RECOVERY = RecoveryLimits()
_SHARD_LEASE = LeaseTerms()
_REGION = RegionLimits()
_STRATEGY = LeastShardAllocation()
_OLD_STRATEGY = ThresholdAllocation()


class Knob(NamedTuple):
    """What is known of a key beside its type and default."""

    group: str
    help: str
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    default_text: str = ""
    "How the docs write a default that depends on something."

    one_of: tuple[str, ...] = ()

    def misfit(self, value: object) -> str | None:
        """Say what a value must be, if this one is not."""
        if self.one_of and value not in self.one_of:
            return f"must be one of {', '.join(self.one_of)}"
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            return None
        if not math.isfinite(value):
            return "must be finite"
        if self.at_least is not None and value < self.at_least:
            return f"must be at least {self.at_least:g}"
        if self.above is not None and value <= self.above:
            return f"must be greater than {self.above:g}"
        if self.at_most is not None and value > self.at_most:
            return f"must be at most {self.at_most:g}"
        return None


def _knob(default: Any, group: str, help: str, *, secret: bool = False, **more: Any) -> Any:  # noqa: A002
    knob = Knob(group, help, **more)
    if default == {}:
        return dataclasses.field(default_factory=dict, metadata={"knob": knob})
    return dataclasses.field(default=default, metadata={"knob": knob}, repr=not secret)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Fields are the keys in lower case."""

    # fmt: off
    database: str = _knob("default", "Servers",
        "Alias of the PostgreSQL database with the journal and the cluster's tables.")
    lifeline_database: str = _knob(None, "Servers",
        "Alias of a direct way to the same database for the lifeline: never through a transaction pooler.",
        default_text="as `DATABASE`")
    channel_layer: str = _knob(None, "Servers",
        "Alias of the channel layer that carries the messages between nodes.",
        default_text="`\"sharding\"` if configured, else `\"default\"`")
    keys: tuple[str, ...] = _knob((), "Servers",
        "Secrets that authenticate the messages between nodes: the first one seals, all of them open. To change a key, "
        "add the new one at the end everywhere, then move it to the front, then remove the old one.", secret=True)
    encrypt: bool = _knob(False, "Servers",
        "Also encrypt the messages between nodes; needs `KEYS`.")
    steering_keys: tuple[str, ...] = _knob((), "Servers",
        "Secrets that sign what operators ask of nodes: erasing, shutting down, moving. Processes without them can ask and "
        "tell, and not steer. They are rotated as `KEYS` are.", secret=True, default_text="as `KEYS`")

    node_name: str = _knob("", "Nodes",
        "What this node is called in lists and logs; `sharding_node --name` goes first, `--processes` adds a number. Give "
        "each node its own: `sharding_shutdown` and `ExternalAllocation` go by names.",
        default_text="the host's name and the process id")
    roles: tuple[str, ...] = _knob((), "Nodes",
        "Roles of this node: types of a role are hosted only where it is present; `sharding_node --roles` goes first.")
    app_version: str = _knob(_NODE.app_version, "Nodes",
        "Version of the application: shards go to the newest, and nothing is rebalanced while versions are mixed.")
    coordinator: bool | str = _knob(True, "Nodes",
        "Which nodes may become coordinator: all (`True`), this process never (`False`), or those of a role (its name).")
    runserver_node: bool = _knob(True, "Nodes",
        "With DEBUG on, `runserver` starts one node as a child that ends with it.")
    min_nodes: int = _knob(_COORDINATOR.min_members, "Nodes",
        "No shard gets its first home before this number of nodes is up; afterwards fewer will do.", at_least=1)
    min_nodes_of_role: Mapping[str, int] = _knob({}, "Nodes",
        "The same for each role, such as `{\"backend\": 2}`.")

    lease_ttl_seconds: float = _knob(_NODE.lease_ttl_seconds, "Lease",
        "The server frees a node's locks after this time without a sign of life, and its shards move.",
        at_least=1.0, at_most=600.0)
    lease_own_limit_seconds: float = _knob(2.0, "Lease",
        "A node stops handling messages this time after it sent the last ping that was answered. Must be well below "
        "`LEASE_TTL_SECONDS`: clocks may differ by 10 %.", above=0.0)
    ping_interval_seconds: float = _knob(_LIFELINE.ping_interval_seconds, "Lease",
        "How often each of the two sessions of the lifeline pings.", at_least=0.02)
    loop_stall_limit_seconds: float = _knob(_LIFELINE.loop_stall_limit_seconds, "Lease",
        "A node whose event loop stands still for this time stops renewing its lease, after logging where it stands.",
        above=0.0)
    handler_warning_seconds: float = _knob(0.5, "Lease",
        "A handler that holds the event loop for longer is logged, with its stack.", at_least=0.05)
    suspect_after_seconds: float = _knob(_LINK.suspect_after_seconds, "Lease",
        "A node that acknowledges nothing for this time is reported, and its locks are looked at.", above=0.0)

    echo_interval_seconds: float = _knob(_NODE.echo_interval_seconds, "Lease",
        "How often a node sends itself a word through the channel layer.", at_least=0.05)
    deaf_after_seconds: float = _knob(_NODE.deaf_after_seconds, "Lease",
        "A node that has not heard itself for this time is deaf, and steps aside if others hear. Up to twice the time where its "
        "words come back late.", above=0.0)

    step_aside_after_seconds: float = _knob(_NODE.step_aside_after_seconds, "Lease",
        "A node that reaches PostgreSQL, but cannot open all of its connections there for this time, gives up its shards and the "
        "connections that it has, and begins anew. It is not ready meanwhile.", above=0.0)

    ask_timeout_seconds: float = _knob(_NODE.ask_timeout_seconds, "Messages",
        "How long an ask waits for its reply.", above=0.0)
    command_window_seconds: float = _knob(_NODE.command_window_seconds, "Messages",
        "How long the id and the reply of a command are remembered; a retry that is older is refused.", above=0.0)
    buffer_size: int = _knob(_REGION.max_parcels, "Messages",
        "Most messages of one type that wait or are under way in one process.", at_least=1)
    buffer_bytes: int = _knob(_REGION.max_bytes, "Messages",
        "The same in bytes. One shard may fill its type's buffer to nine tenths.", at_least=65_536)
    buffer_total_bytes: int = _knob(_REGION.max_total_bytes, "Messages",
        "The same in bytes for all types of one process together.", at_least=65_536)
    mailbox_size: int = _knob(_NODE.mailbox_size, "Messages",
        "Most messages that wait for one entity.", at_least=1)
    retry_interval_seconds: float = _knob(_REGION.retry_seconds, "Messages",
        "A message that the coordinator, or a node that it tells, has not acknowledged is sent again after this time.",
        at_least=0.01)

    number_of_shards: int = _knob(_NODE.number_of_shards, "Shards",
        "Into how many shards the ids of a type are hashed: ten for each node that you will ever have. Equal on all "
        "nodes, and fixed for the life of the data.", at_least=1, at_most=1_000_000)
    handoff_timeout_seconds: float = _knob(_COORDINATOR.hand_off_timeout_seconds, "Shards",
        "Longest time for a shard to stop at its old home; its entities are stopped by force before that.", above=0.0)
    rebalance_interval_seconds: float = _knob(_COORDINATOR.rebalance_interval_seconds, "Shards",
        "How often the allocation strategy is asked what to move.", at_least=0.1)
    rebalance_absolute_limit: int = _knob(_STRATEGY.absolute_limit, "Shards",
        "Most shards of a type that one round of rebalancing moves; the next round begins when it is over. 0: the older "
        "algorithm with the two limits below.", at_least=0)
    rebalance_relative_limit: float = _knob(_STRATEGY.relative_limit, "Shards",
        "The same as a fraction of the type's shards; the lower limit counts, but one may always move.",
        above=0.0, at_most=1.0)
    rebalance_threshold: int = _knob(_OLD_STRATEGY.threshold, "Shards",
        "Older algorithm: the fullest node may have this number of shards of a type more than the emptiest.", at_least=1)
    max_simultaneous_rebalance: int = _knob(_OLD_STRATEGY.max_simultaneous, "Shards",
        "Older algorithm: most shards of a type on the move at a time.", at_least=1)
    max_concurrent_handoffs: int = _knob(_COORDINATOR.max_concurrent_hand_offs, "Shards",
        "Most shards on the move at a time.", at_least=1)

    passivate_after_seconds: float = _knob(_NODE.passivate_after_seconds, "Entities",
        "An entity without messages for this time is stopped; 0: never.", at_least=0.0)
    active_entity_limit: int = _knob(_NODE.active_entity_limit, "Entities",
        "Most entities of one type in a node's memory, shared out evenly among its shards there; others leave for them and are "
        "recovered when they are needed. 0: any number. Remembered entities and singletons always stay.", at_least=0)
    passivation: str = _knob(_NODE.passivation, "Entities",
        "Which ones leave then: `least-recently-used`, `segmented-least-recently-used`, `most-recently-used`, "
        "`least-frequently-used`, `least-frequently-used-with-aging` or `composite`.", one_of=tuple(NAMED))
    snapshot_every: int = _knob(0, "Entities",
        "An event-sourced entity's snapshot is taken after this number of events, beside its commands; 0: never.", at_least=0)
    keep_snapshots: int = _knob(2, "Entities",
        "How many snapshots of an entity are kept: one that cannot be read falls back to the one before it.", at_least=1)
    delete_events: bool = _knob(False, "Entities",
        "Delete the events behind the oldest kept snapshot that are older than twice `COMMAND_WINDOW_SECONDS`.")
    pipelined: bool = _knob(False, "Entities",
        "Run an entity's next command while the reply of the former one still waits for its commit.")
    max_concurrent_recoveries: int = _knob(_NODE.max_concurrent_recoveries, "Entities",
        "Most entities, over all types of a node, that are read from the journal and rebuilt at a time.", at_least=1)
    max_recovery_events: int = _knob(_RECOVERY.max_events, "Entities",
        "An entity with more events after its last snapshot is not recovered: its callers are told `HistoryTooLong`. 0: no "
        "such limit.", at_least=0)
    max_history_bytes: int = _knob(_RECOVERY.max_bytes, "Entities",
        "The same in bytes of those events.", at_least=0)
    max_reply_bytes: int = _knob(_NODE.max_reply_bytes, "Entities",
        "A command that persists and whose reply is larger fails, and stores nothing: the reply is kept with its last event.",
        at_least=1024)
    max_state_bytes: int = _knob(_NODE.max_state_bytes, "Entities",
        "A larger state is not taken as a snapshot; a durable-state entity's command that leads to it fails.", at_least=1024)
    entity_restart_backoff_seconds: float = _knob(_NODE.restart_backoff_seconds, "Entities",
        "A remembered entity, or a singleton, that stopped without passivating is started again after this time.", above=0.0)
    entity_stop_timeout_seconds: float = _knob(_NODE.stop_timeout_seconds, "Entities",
        "An entity that ignores its stop message is stopped by force after this time.", above=0.0)
    entity_recovery_number: int = _knob(0, "Entities",
        "After a move or a restart remembered entities are started in groups of this size, over all shards of a type's region; "
        "0: all at once.", at_least=0)
    entity_recovery_interval_seconds: float = _knob(0.1, "Entities",
        "The pause between these groups.", above=0.0)
    also_threads: int = _knob(4, "Entities",
        "Threads, and so database connections of a node, for `persist(..., also=...)`.", at_least=1)
    also_lock_timeout_seconds: float = _knob(10.0, "Entities",
        "How long a function given to `also=` waits for a lock on a row before its command fails.", above=0.0)
    quote_errors: bool | None = _knob(None, "Entities",
        "Whether errors, logs and traces repeat the texts of your exceptions and values that do not fit. They may hold what "
        "not everybody should read; else class names, fields and places are told, and tracebacks without texts. "
        "`Rejected` reaches its asker in any case.", default_text="as `DEBUG`; in tests `True`")

    use_lease: str = _knob("", "Leases of shards",
        "A shard, or a singleton, starts only with a lease of its own: `\"postgres\"`, or the dotted path of a factory of "
        "yours (`sharding_app.ports.lease`); empty: none. `ShardingSettings(use_lease=...)` of a type goes first.")
    shard_lease_ttl_seconds: float = _knob(_SHARD_LEASE.ttl_seconds, "Leases of shards",
        "A lease that has not been renewed for this time may be taken by another node; the shard has stopped when nine tenths are over.", above=0.0)
    shard_lease_renew_seconds: float = _knob(None, "Leases of shards",
        "How often it is renewed; less than half of its time.", above=0.0,
        default_text="a tenth of `SHARD_LEASE_TTL_SECONDS`, at least 5")
    shard_lease_retry_seconds: float = _knob(_SHARD_LEASE.retry_seconds, "Leases of shards",
        "How long after a refusal or a failure it is asked for again.", above=0.0)
    shard_lease_answer_seconds: float = _knob(_SHARD_LEASE.answer_seconds, "Leases of shards",
        "How long an answer about leases is waited for.", above=0.0)

    health_port: int = _knob(0, "Health and metrics",
        "Port of a node's own HTTP endpoint with `/startup`, `/ready`, `/alive` and `/metrics`; 0: none. Children of "
        "`sharding_node --processes` take the ports from this one on; `--health-port` goes first.",
        at_least=0, at_most=65_535)
    health_host: str = _knob("127.0.0.1", "Health and metrics",
        "Where that endpoint listens. The probes have no password: leave the loopback only inside a network of your own.")
    metrics_token: str = _knob("", "Health and metrics",
        "Clients with this secret as their bearer token may read `/metrics`, of the site and of the nodes. Without it, the site "
        "shows them to members of staff with `sharding.view_cluster` only, and nodes to all who reach `HEALTH_HOST`.",
        secret=True)

    link_max_frame_bytes: int = _knob(_LINK.max_frame_bytes, "Links",
        "A batch is closed at this size; only one larger message makes a larger batch.", at_least=1024)
    link_max_frame_messages: int = _knob(_LINK.max_frame_messages, "Links",
        "Most messages in one batch.", at_least=1)
    link_max_message_bytes: int = _knob(_LINK.max_message_bytes, "Links",
        "A larger message is refused: the channel layer carries 1 MiB.", at_least=1024)
    link_max_queue_messages: int = _knob(_LINK.max_queue_messages, "Links",
        "Most messages that wait to be sent to one process; more are refused.", at_least=1)
    link_max_queue_bytes: int = _knob(_LINK.max_queue_bytes, "Links",
        "The same in bytes.", at_least=65_536)
    link_window_bytes: int = _knob(_LINK.window_bytes, "Links",
        "Most bytes sent to one process and not acknowledged: what Redis holds for each link at most.", at_least=65_536)
    link_window_frames: int = _knob(_LINK.window_frames, "Links",
        "The same in batches; the `core` layer's capacity should be greater.", at_least=1)
    link_resend_after_seconds: float = _knob(_LINK.resend_after_seconds, "Links",
        "Shortest wait for an acknowledgement before a batch is sent again.", above=0.0)
    link_ack_delay_seconds: float = _knob(_LINK.ack_delay_seconds, "Links",
        "How long an acknowledgement may wait for a batch to ride on.", above=0.0)
    link_idle_after_seconds: float = _knob(_LINK.idle_after_seconds, "Links",
        "A link without traffic for this time is dropped; the next message makes a new one.", above=0.0)
    # fmt: on

    # -- as the parts take them ------------------------------------------------------------------------------------

    @cached_property
    def lifeline(self) -> LifelineSettings:
        return LifelineSettings(
            ping_interval_seconds=self.ping_interval_seconds,
            answer_timeout_seconds=self.lease_own_limit_seconds,
            open_timeout_seconds=self.lease_ttl_seconds,
            loop_stall_limit_seconds=self.loop_stall_limit_seconds,
        )

    @cached_property
    def link_limits(self) -> LinkLimits:
        return LinkLimits(
            max_frame_bytes=self.link_max_frame_bytes,
            max_frame_messages=self.link_max_frame_messages,
            max_message_bytes=self.link_max_message_bytes,
            max_queue_messages=self.link_max_queue_messages,
            max_queue_bytes=self.link_max_queue_bytes,
            window_bytes=self.link_window_bytes,
            window_frames=self.link_window_frames,
            resend_after_seconds=self.link_resend_after_seconds,
            ack_delay_seconds=self.link_ack_delay_seconds,
            idle_after_seconds=self.link_idle_after_seconds,
            suspect_after_seconds=self.suspect_after_seconds,
        )

    @cached_property
    def region_limits(self) -> RegionLimits:
        return RegionLimits(
            max_parcels=self.buffer_size,
            max_bytes=self.buffer_bytes,
            max_total_bytes=self.buffer_total_bytes,
            retry_seconds=self.retry_interval_seconds,
        )

    @cached_property
    def coordination(self) -> CoordinatorSettings:
        return CoordinatorSettings(
            retry_seconds=self.retry_interval_seconds,
            hand_off_timeout_seconds=self.handoff_timeout_seconds,
            rebalance_interval_seconds=self.rebalance_interval_seconds,
            max_concurrent_hand_offs=self.max_concurrent_handoffs,
            min_members=self.min_nodes,
            min_members_of_role=dict(self.min_nodes_of_role),
        )

    @cached_property
    def shard_leases(self) -> LeaseTerms:
        return LeaseTerms(
            ttl_seconds=self.shard_lease_ttl_seconds,
            renew_seconds=self.shard_lease_renew_seconds,
            retry_seconds=self.shard_lease_retry_seconds,
            answer_seconds=self.shard_lease_answer_seconds,
        )

    @property
    def recovery_rate(self) -> tuple[int, float] | None:
        if not self.entity_recovery_number:
            return None
        return self.entity_recovery_number, self.entity_recovery_interval_seconds

    @cached_property
    def allocation(self) -> ShardAllocationStrategy:
        if not self.rebalance_absolute_limit:
            return ThresholdAllocation(self.rebalance_threshold, self.max_simultaneous_rebalance)
        return LeastShardAllocation(self.rebalance_absolute_limit, self.rebalance_relative_limit)

    @cached_property
    def type_defaults(self) -> ShardingSettings:
        """What a type gets that says nothing itself."""
        return ShardingSettings(
            number_of_shards=self.number_of_shards,
            snapshot_every=self.snapshot_every,
            keep_snapshots=self.keep_snapshots,
            delete_events=self.delete_events,
            passivate_after_seconds=self.passivate_after_seconds,
            active_entity_limit=self.active_entity_limit,
            passivation=self.passivation,
            pipelined=self.pipelined,
            ask_timeout_seconds=self.ask_timeout_seconds,
            use_lease=self.use_lease,
        )

    @property
    def sealing_keys(self) -> tuple[bytes, ...]:
        return tuple(key.encode() for key in self.keys)

    def node(
        self,
        *,
        name: str = "",
        host: str = "",
        pid: int = 0,
        roles: tuple[str, ...] | None = None,
        app_version: str = "",
        development: bool = True,
    ) -> NodeConfig:
        """Return a node's configuration. What is given, on the command line say, goes before the settings."""
        mine = self.roles if roles is None else roles
        return NodeConfig(
            name=name,
            host=host,
            pid=pid,
            roles=mine,
            app_version=app_version or self.app_version,
            candidate=self.may_coordinate(mine),
            number_of_shards=self.number_of_shards,
            lease_ttl_seconds=self.lease_ttl_seconds,
            ping_interval_seconds=self.ping_interval_seconds,
            ask_timeout_seconds=self.ask_timeout_seconds,
            mailbox_size=self.mailbox_size,
            command_window_seconds=self.command_window_seconds,
            passivate_after_seconds=self.passivate_after_seconds,
            active_entity_limit=self.active_entity_limit,
            passivation=self.passivation,
            max_concurrent_recoveries=self.max_concurrent_recoveries,
            recovery=RecoveryLimits(max_events=self.max_recovery_events, max_bytes=self.max_history_bytes),
            max_reply_bytes=self.max_reply_bytes,
            max_state_bytes=self.max_state_bytes,
            echo_interval_seconds=self.echo_interval_seconds,
            deaf_after_seconds=self.deaf_after_seconds,
            step_aside_after_seconds=self.step_aside_after_seconds,
            region=self.region_limits,
            links=self.link_limits,
            steering_keys=tuple(key.encode() for key in self.steering_keys or self.keys),
            unguarded=not (development or self.keys or self.steering_keys),
            coordinator=self.coordination,
            shard_leases=self.shard_leases,
            restart_backoff_seconds=self.entity_restart_backoff_seconds,
            stop_timeout_seconds=self.entity_stop_timeout_seconds,
            recovery_rate=self.recovery_rate,
            strategy_of=lambda _: self.allocation,
        )

    def quotes_errors(self, *, otherwise: bool) -> bool:
        return otherwise if self.quote_errors is None else self.quote_errors

    def may_coordinate(self, roles: tuple[str, ...]) -> bool:
        """Whether a node of these roles is a candidate."""
        return self.coordinator if isinstance(self.coordinator, bool) else self.coordinator in roles
