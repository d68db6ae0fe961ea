"""All keys of `SHARDING`: type, default, bounds and meaning. `sharding_app.settings.load` reads
them.

A key that sets a field of another part names it as its target: the default is taken from there, and
the value goes there. The table in `docs/settings.md` is made from these texts.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from sharding_app.entities.settings import (
    LARGEST_NUMBER,
    LONGEST_DAYS,
    ShardingSettings,
)
from sharding_app.protocol.allocation.least_shards import LeastShardAllocation
from sharding_app.protocol.allocation.strategy import ShardAllocationStrategy
from sharding_app.protocol.allocation.threshold import ThresholdAllocation
from sharding_app.protocol.call import LONGEST_SECONDS
from sharding_app.protocol.coordinator.settings import CoordinatorSettings
from sharding_app.protocol.delivery.deliveries import BackOff
from sharding_app.protocol.journals import CLUSTERS_OWN
from sharding_app.protocol.link.limits import LinkLimits
from sharding_app.protocol.liveness.shard_lease import LeaseTerms
from sharding_app.protocol.passivation.strategy import NAMED
from sharding_app.protocol.recovery_limits import RecoveryLimits
from sharding_app.protocol.region import RegionLimits
from sharding_app.runtime.base.config import DeliverySettings, LifelineSettings, NodeConfig

T = TypeVar("T")


class Target(NamedTuple):
    """The field of a part that a key sets."""

    part: type
    field: str
    default: Any


class _Part:
    """A part of the protocol or of the runtime that settings configure: its attributes are
    targets.
    """

    def __init__(self, part: Callable[[], object]) -> None:
        self._defaults = part()

    def __getattr__(self, field: str) -> Target:
        return Target(type(self._defaults), field, getattr(self._defaults, field))


_BACK_OFF = _Part(BackOff)
_COORDINATOR = _Part(CoordinatorSettings)
_DELIVERY = _Part(DeliverySettings)
_LIFELINE = _Part(LifelineSettings)
_LINK = _Part(LinkLimits)
_NODE = _Part(NodeConfig)
_RECOVERY = _Part(RecoveryLimits)
_SHARD_LEASE = _Part(LeaseTerms)
_REGION = _Part(RegionLimits)
_STRATEGY = _Part(LeastShardAllocation)
_OLD_STRATEGY = _Part(ThresholdAllocation)
_TYPE = _Part(ShardingSettings)


class Knob(NamedTuple):
    """The metadata of a key, beside its type and default."""

    group: str
    help: str
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    default_text: str = ""
    "The default as the docs show it, if it depends on something."

    one_of: tuple[str, ...] = ()
    targets: tuple[Target, ...] = ()
    "The fields that get the key's value."

    def misfit(self, value: object, *, seconds: bool = False) -> str | None:
        """Return the rule that the value breaks, or None. `seconds`: it is a time."""
        if self.one_of and value not in self.one_of:
            return f"must be one of {', '.join(self.one_of)}"
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            return None
        if isinstance(value, float) and not math.isfinite(value):
            return "must be finite"
        if self.at_least is not None and value < self.at_least:
            return f"must be at least {self.at_least:g}"
        if self.above is not None and value <= self.above:
            return f"must be greater than {self.above:g}"
        if self.at_most is not None and value > self.at_most:
            return f"must be at most {self.at_most:g}"
        if seconds and value > LONGEST_SECONDS:
            return f"must be at most {LONGEST_SECONDS:.0f}"
        if isinstance(value, int) and value > LARGEST_NUMBER:
            return f"must be at most {LARGEST_NUMBER}"
        return None


def _knob(
    default: Any,
    group: str,
    help: str,  # noqa: A002
    *,
    to: tuple[Target, ...] = (),
    secret: bool = False,
    **more: Any,
) -> Any:
    """Make a field. A target in place of a default gives its own default, and gets the value
    too.
    """
    if isinstance(default, Target):
        to = (default, *to)
        default = default.default
    knob = Knob(group, help, targets=to, **more)
    if default == {}:
        return dataclasses.field(default_factory=dict, metadata={"knob": knob})
    return dataclasses.field(default=default, metadata={"knob": knob}, repr=not secret)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings; each field is a key in lower case."""

    # fmt: off
    database: str = _knob("default", "Servers",
        "PostgreSQL database alias for the journal and the cluster's tables.")
    lifeline_database: str = _knob(None, "Servers",
        "Alias of a direct connection to the same database, for the lifeline. It must not go "
        "through a transaction pooler.", default_text="as `DATABASE`")
    journals: Mapping[str, int] = _knob({}, "Servers",
        "PostgreSQL aliases of databases that share the journal, with weights: `{\"default\": 1, \"journal_b\": 2}`. "
        "Each new shard lies in one of them, by weight; existing ones stay until they are moved. `DATABASE` has the weight 0 if it is not "
        "named, and all shards if this is empty. Nodes connect to each of them directly.")
    channel_layer: str = _knob(None, "Servers",
        "Alias of the channel layer that carries messages between nodes.",
        default_text="`\"sharding\"` if configured, else `\"default\"`")
    keys: tuple[str, ...] = _knob((), "Servers",
        "Secrets that authenticate messages between nodes. A node seals with the first key and "
        "accepts all of them. To rotate: append the new key on all nodes, then move it to the "
        "front, then remove the old one.", secret=True)
    links: str = _knob("auto", "Servers",
        "How messages travel between processes. `\"direct\"`: over connections of their own, with no channel "
        "layer; `\"channel_layer\"`: over the channel layer; `\"auto\"`: directly, and over the channel layer "
        "where no direct connection can be made. Without a layer of the alias `CHANNEL_LAYER`, or with one in "
        "memory, `\"auto\"` is `\"direct\"`.", one_of=("auto", "direct", "channel_layer"))
    link_address: str = _knob("", "Servers",
        "Address at which processes on other machines reach this node directly, as `\"10.0.0.5\"` or "
        "`\"node-1.example:7400\"`; a free port is taken if none is given. Empty: processes on the same machine "
        "only, over a Unix socket. Requires `KEYS`.")
    link_bind: str = _knob("", "Servers",
        "Address at which this node listens, where `LINK_ADDRESS` is not one of this machine's own (behind "
        "NAT, in a container): `\"0.0.0.0\"`, say.", default_text="the host of `LINK_ADDRESS`")
    link_socket_folder: str = _knob("", "Servers",
        "Folder for the Unix sockets of nodes. It must belong to their user alone (mode 0700).",
        default_text="a folder of this user in the system's temporary folder")
    link_tls: Mapping[str, str] = _knob({}, "Servers",
        "Files for TLS between machines: `certificate`, `key` and `authority`. The authority must be the "
        "cluster's own: each process with a certificate of it may connect.")
    encrypt: bool = _knob(False, "Servers",
        "Also encrypt the messages between nodes. Requires `KEYS`.")
    steering_keys: tuple[str, ...] = _knob((), "Servers",
        "Secrets that sign operators' requests to nodes: erase, shut down, move. A process without "
        "them can ask and tell entities, but cannot send such requests. Rotate them like `KEYS`.",
        secret=True, default_text="as `KEYS`")
    personal_keys: tuple[str, ...] = _knob((), "Servers",
        "Secrets that protect the keys of [personal data](personal-data.md). The first one wraps new keys, "
        "all of them unwrap. Without the secret that wrapped a key, the data under it cannot be read: put a "
        "new secret in front, and keep the others.", secret=True)

    node_name: str = _knob("", "Nodes",
        "Name of this node in lists and logs. `sharding_node --name` takes precedence; "
        "`--processes` appends a number. Names should be unique: `sharding_shutdown` and "
        "`ExternalAllocation` address nodes by name.",
        default_text="host name and process id")
    roles: tuple[str, ...] = _knob((), "Nodes",
        "Roles of this node. An entity type with a role is hosted only on nodes that have it. "
        "`sharding_node --roles` takes precedence.")
    app_version: str = _knob(_NODE.app_version, "Nodes",
        "Version of your application. New homes are chosen on nodes with the newest version; "
        "nothing is rebalanced while versions are mixed. A node without a version counts as the oldest.",
        default_text="none")
    coordinator: bool | str = _knob(True, "Nodes",
        "Which nodes may become coordinator: all (`True`), never this process (`False`), or nodes "
        "with the named role.")
    runserver_node: bool = _knob(True, "Nodes",
        "With `DEBUG` on, `runserver` starts one node as a child process and stops it on exit.")
    min_nodes: int = _knob(_COORDINATOR.min_members, "Nodes",
        "Place no shard until this many nodes are up. Failover later does not wait.", at_least=1)
    min_nodes_of_role: Mapping[str, int] = _knob(_COORDINATOR.min_members_of_role, "Nodes",
        "Place no shard until this many nodes of each role are up, such as `{\"backend\": 2}`.")

    lease_ttl_seconds: float = _knob(_NODE.lease_ttl_seconds, "Lease",
        "PostgreSQL releases a node's locks after this time without a sign of life, and its shards "
        "move.", at_least=1.0, at_most=600.0,
        to=(_LIFELINE.open_timeout_seconds,))
    lease_own_limit_seconds: float = _knob(_LIFELINE.answer_timeout_seconds, "Lease",
        "A node stops handling messages when its last answered ping was sent this long ago. Must "
        "be well below `LEASE_TTL_SECONDS`: clock rates may differ by 10 %.", above=0.0)
    ping_interval_seconds: float = _knob(_LIFELINE.ping_interval_seconds, "Lease",
        "Interval between pings on each of the lifeline's two sessions.", at_least=0.02,
        to=(_NODE.ping_interval_seconds,))
    loop_stall_limit_seconds: float = _knob(_LIFELINE.loop_stall_limit_seconds, "Lease",
        "A node whose event loop has been blocked for this time logs where it is blocked and stops "
        "renewing its lease.", above=0.0)
    loop_stall_end_seconds: float = _knob(60.0, "Lease",
        "`sharding_node` ends a process whose event loop has been blocked for this time, so that its "
        "supervisor starts another one; 0: never. With `DEBUG` a process is never ended: a debugger may "
        "hold it.", at_least=0.0)
    handler_warning_seconds: float = _knob(0.5, "Lease",
        "Log a handler that blocks the event loop for longer than this, with its stack.",
        at_least=0.05)
    suspect_after_seconds: float = _knob(_LINK.suspect_after_seconds, "Lease",
        "A node that acknowledges nothing for this time is reported as suspect, and its locks are "
        "checked.", above=0.0)

    echo_interval_seconds: float = _knob(_NODE.echo_interval_seconds, "Lease",
        "Interval at which a node sends a test message to itself as to any other process. With direct "
        "links it comes back while another node answers, or while no other node is there.",
        at_least=0.05)
    deaf_after_seconds: float = _knob(_NODE.deaf_after_seconds, "Lease",
        "A node that has received none of its own test messages for this time is deaf; it gives up "
        "its shards if other nodes still receive theirs. The limit grows, at most to twice this, "
        "where the test messages come back late.", above=0.0)

    step_aside_after_seconds: float = _knob(_NODE.step_aside_after_seconds, "Lease",
        "A node that reaches PostgreSQL but has lacked one of its connections for this time gives "
        "up its shards and connections, and starts again. It is not ready until then.", above=0.0)

    ask_timeout_seconds: float = _knob(_NODE.ask_timeout_seconds, "Messages",
        "How long an ask waits for its reply.", above=0.0,
        to=(_TYPE.ask_timeout_seconds,))
    command_window_seconds: float = _knob(_NODE.command_window_seconds, "Messages",
        "How long a command's id and reply are remembered. A retry after that is refused.",
        above=0.0)
    message_failures: int = _knob(_BACK_OFF.failures, "Messages",
        "A durable message or timer whose target has failed so often is given to the sender's "
        "`on_failure` command, or parked.", at_least=1)
    message_backoff_seconds: float = _knob(_BACK_OFF.first_seconds, "Messages",
        "Pause before a durable message whose target has failed is delivered again. It doubles with "
        "each failure.", above=0.0)
    message_backoff_max_seconds: float = _knob(_BACK_OFF.most_seconds, "Messages",
        "The longest of these pauses.", above=0.0)
    message_timeout_seconds: float = _knob(_DELIVERY.answer_seconds, "Messages",
        "A durable message without an answer is delivered again after this time. A handler of one "
        "may take longer: its effect counts all the same.", above=0.0)
    messages_in_memory: int = _knob(_DELIVERY.max_rows, "Messages",
        "Maximum number of durable messages and timers in a node's memory. The others are read from "
        "the journal when there is room.", at_least=100)
    messages_in_memory_bytes: int = _knob(_DELIVERY.max_bytes, "Messages",
        "Maximum bytes of these.", at_least=65_536)
    messages_under_way: int = _knob(_DELIVERY.most_under_way, "Messages",
        "Maximum number of durable messages and timers that a node delivers at the same time.",
        at_least=1)
    followers: int = _knob(_NODE.followers, "Messages",
        "Maximum number of entities that a process follows, and of questions of followers that wait on "
        "a node. Each waiting question counts in `BUFFER_SIZE` of the process that follows.", at_least=1)
    buffer_size: int = _knob(_REGION.max_calls, "Messages",
        "Maximum number of messages of one entity type that wait or are in flight in one process.",
        at_least=1)
    buffer_bytes: int = _knob(_REGION.max_bytes, "Messages",
        "Maximum bytes of these messages. One shard may use up to 90 % of its type's buffer, in "
        "number and in bytes.", at_least=65_536)
    buffer_total_bytes: int = _knob(_REGION.max_total_bytes, "Messages",
        "Maximum bytes of these messages over all entity types of one process.", at_least=65_536)
    mailbox_size: int = _knob(_NODE.mailbox_size, "Messages",
        "Maximum number of messages waiting for one entity.", at_least=1)
    retry_interval_seconds: float = _knob(_REGION.retry_seconds, "Messages",
        "A message to or from the coordinator that is not acknowledged is sent again after this "
        "time.", at_least=0.01,
        to=(_COORDINATOR.retry_seconds,))

    number_of_shards: int = _knob(_NODE.number_of_shards, "Shards",
        "Number of shards per entity type (about 10 times the most nodes you expect). Must be "
        "equal on all nodes. `sharding_resize` changes it in a running cluster.", at_least=1, at_most=1_000_000,
        to=(_TYPE.number_of_shards,))
    handoff_timeout_seconds: float = _knob(_COORDINATOR.hand_off_timeout_seconds, "Shards",
        "A shard that has to move and has not stopped after this time is stopped by force on its "
        "node. An entity that ignores its stop message is stopped after "
        "`ENTITY_STOP_TIMEOUT_SECONDS`.", above=0.0)
    rebalance_interval_seconds: float = _knob(_COORDINATOR.rebalance_interval_seconds, "Shards",
        "Interval at which the coordinator asks the allocation strategy which shards to move.",
        at_least=0.1)
    rebalance_absolute_limit: int = _knob(_STRATEGY.absolute_limit, "Shards",
        "Maximum number of shards of a type moved in one round of rebalancing. The next round "
        "starts when the round is over. 0 selects the older algorithm, which uses "
        "`REBALANCE_THRESHOLD` and `MAX_SIMULTANEOUS_REBALANCE`.", at_least=0)
    rebalance_relative_limit: float = _knob(_STRATEGY.relative_limit, "Shards",
        "The same limit as a fraction of the type's shards. The lower of the two applies, but one "
        "shard may always move.", above=0.0, at_most=1.0)
    rebalance_threshold: int = _knob(_OLD_STRATEGY.threshold, "Shards",
        "Older algorithm: allowed difference in shards of a type between the fullest and the "
        "emptiest node.", at_least=1)
    max_simultaneous_rebalance: int = _knob(_OLD_STRATEGY.max_simultaneous, "Shards",
        "Older algorithm: maximum number of shards of a type that move at the same time.",
        at_least=1)
    max_concurrent_handoffs: int = _knob(_COORDINATOR.max_concurrent_hand_offs, "Shards",
        "Maximum number of shards of all types that move at the same time.", at_least=1)

    passivate_after_seconds: float = _knob(_NODE.passivate_after_seconds, "Entities",
        "Stop an entity that has received no message for this time. 0: never.", at_least=0.0,
        to=(_TYPE.passivate_after_seconds,))
    active_entity_limit: int = _knob(_NODE.active_entity_limit, "Entities",
        "Maximum number of entities of one type in a node's memory, divided evenly among the "
        "type's shards on the node, with at least one for each. Above it entities are passivated, and recovered when needed. "
        "Remembered entities and singletons are never passivated. 0: no limit.", at_least=0,
        to=(_TYPE.active_entity_limit,))
    passivation: str = _knob(_NODE.passivation, "Entities",
        "Which entities are passivated at `ACTIVE_ENTITY_LIMIT`: `least-recently-used`, "
        "`segmented-least-recently-used`, `most-recently-used`, `least-frequently-used`, "
        "`least-frequently-used-with-aging` or `composite`.", one_of=tuple(NAMED),
        to=(_TYPE.passivation,))
    snapshot_every: int = _knob(0, "Entities",
        "Take a snapshot of an event-sourced entity after this many events. Replies do not wait "
        "for it. 0: never.", at_least=0,
        to=(_TYPE.snapshot_every,))
    keep_snapshots: int = _knob(2, "Entities",
        "Number of snapshots kept per entity. If one cannot be read, recovery uses the one before "
        "it.", at_least=1,
        to=(_TYPE.keep_snapshots,))
    delete_events: bool = _knob(False, "Entities",
        "Delete the events that precede the oldest kept snapshot once they are older than twice "
        "`COMMAND_WINDOW_SECONDS`.",
        to=(_TYPE.delete_events,))
    keep_events_days: int = _knob(0, "Entities",
        "With `DELETE_EVENTS`: keep events that are younger than this number of days. 0: their age "
        "does not matter.", at_least=0, at_most=LONGEST_DAYS,
        to=(_TYPE.keep_events_days,))
    keep_events: int = _knob(1, "Entities",
        "With `DELETE_EVENTS`: keep this number of the newest events of each entity.", at_least=1,
        to=(_TYPE.keep_events,))
    retention_interval_seconds: float = _knob(_NODE.retention_interval_seconds, "Entities",
        "Pause after one node has gone through all snapshots of a type with `DELETE_EVENTS`, in "
        "search of events to delete of entities that nothing calls any more.", at_least=1.0)
    pipelined: bool = _knob(False, "Entities",
        "Run an entity's next command while the reply to the previous one still waits for its "
        "commit.",
        to=(_TYPE.pipelined,))
    max_concurrent_recoveries: int = _knob(_NODE.max_concurrent_recoveries, "Entities",
        "Maximum number of entities, over all types of a node, that are recovered from the journal "
        "at the same time.", at_least=1)
    max_recovery_events: int = _knob(_RECOVERY.max_events, "Entities",
        "An entity with more events after its last snapshot is not recovered; callers get "
        "`HistoryTooLong`. 0: no limit.", at_least=0)
    max_history_bytes: int = _knob(_RECOVERY.max_bytes, "Entities",
        "An entity with more bytes of events after its last snapshot is not recovered; callers get "
        "`HistoryTooLong`. 0: no limit.", at_least=0)
    max_reply_bytes: int = _knob(_NODE.max_reply_bytes, "Entities",
        "Maximum bytes of the reply to a command that persists; the reply is stored with the "
        "command's last event. A command with a larger reply fails and stores nothing.",
        at_least=1024)
    max_state_bytes: int = _knob(_NODE.max_state_bytes, "Entities",
        "Maximum bytes of a state. A larger one is not stored as a snapshot; a durable-state "
        "entity's command that produces one fails.", at_least=1024)
    entity_restart_backoff_seconds: float = _knob(_NODE.restart_backoff_seconds, "Entities",
        "Delay before a remembered entity or a singleton that stopped without passivating is "
        "started again.", above=0.0)
    entity_stop_timeout_seconds: float = _knob(_NODE.stop_timeout_seconds, "Entities",
        "An entity that ignores its stop message is stopped by force after this time. So is the "
        "`run` of a worker that has lost its lease and goes on.", above=0.0)
    entity_recovery_number: int = _knob(0, "Entities",
        "After a move or a restart, start remembered entities in groups of this size, per node and "
        "type. 0: all at once.", at_least=0)
    entity_recovery_interval_seconds: float = _knob(0.1, "Entities",
        "Pause between these groups.", above=0.0)
    journal_connections: int = _knob(2, "Entities",
        "Number of connections per node that append events: the most appends under way at the same "
        "time, each of other shards. More help where a commit takes long. With one, an append that "
        "waits for a lock, or whose connection is lost, holds up all entities of the node.",
        at_least=1, at_most=32)
    partition_journal: bool = _knob(False, "Entities",
        "Whether the first `migrate` makes `sharding_event` with a partition for each type. Later, "
        "`manage.py sharding_partition --by-type` does it in use.")
    transaction_threads: int = _knob(4, "Entities",
        "Number of threads per node for `persist(..., in_transaction=...)`. Each uses one database "
        "connection.", at_least=1)
    transaction_lock_timeout_seconds: float = _knob(10.0, "Entities",
        "How long a function given as `in_transaction=` may wait for a row lock before its command fails.",
        at_least=0.001, at_most=86_400.0)
    quote_errors: bool | None = _knob(None, "Entities",
        "Whether errors, logs and traces contain the text of your exceptions and of invalid "
        "values, which may be confidential. If not, they contain class names, field names and "
        "places, and tracebacks without these texts. A `Rejected` always reaches its caller in "
        "full.", default_text="as `DEBUG`; in tests `True`")

    use_lease: str = _knob("", "Leases of shards",
        "Start a shard or a singleton only while its node holds a lease for it: `\"postgres\"`, or "
        "the dotted path of your own factory (`sharding_app.ports.lease`). Empty: no leases. A "
        "type's `ShardingSettings(use_lease=...)` takes precedence.",
        to=(_TYPE.use_lease,))
    shard_lease_ttl_seconds: float = _knob(_SHARD_LEASE.ttl_seconds, "Leases of shards",
        "A lease that is not renewed for this time may be taken by another node. The holder gives "
        "it up after 90 % of it, by its own clock.", above=0.0)
    shard_lease_renew_seconds: float = _knob(_SHARD_LEASE.renew_seconds, "Leases of shards",
        "Interval at which a lease is renewed. Must be less than half of "
        "`SHARD_LEASE_TTL_SECONDS`.",
        above=0.0,
        default_text="a tenth of `SHARD_LEASE_TTL_SECONDS`, at least 5")
    shard_lease_retry_seconds: float = _knob(_SHARD_LEASE.retry_seconds, "Leases of shards",
        "Delay before a lease that was refused, or whose request failed, is requested again.",
        above=0.0)
    shard_lease_answer_seconds: float = _knob(_SHARD_LEASE.answer_seconds, "Leases of shards",
        "How long a request about leases waits for its answer.", above=0.0)

    health_port: int = _knob(0, "Health and metrics",
        "Port of a node's own HTTP endpoint with `/startup`, `/ready`, `/alive` and `/metrics`. "
        "The children of `sharding_node --processes` use consecutive ports from this one. "
        "`--health-port` takes precedence. 0: no endpoint.", at_least=0, at_most=65_535)
    health_host: str = _knob("127.0.0.1", "Health and metrics",
        "Address on which that endpoint listens. The probes need no password: use another address "
        "than loopback only in a private network.")
    metrics_token: str = _knob("", "Health and metrics",
        "Clients that send this secret as bearer token may read `/metrics` of the site and of the "
        "nodes. If it is empty, the site shows metrics only to staff with `sharding.view_cluster`, "
        "and nodes to every client that reaches `HEALTH_HOST`.", secret=True)

    may_watch: str = _knob("", "Live pages",
        "Dotted path of a function `(user, entity_class, entity_id, view) -> bool`: who may watch the "
        "views of entities without a `may_watch` of their own. Empty: views that are not public are "
        "shown to no browser.")
    live_browsers: int = _knob(20_000, "Live pages",
        "Maximum number of browsers that are connected to a web process for live pages.", at_least=1)
    live_views: int = _knob(50, "Live pages",
        "Maximum number of views that one of them watches.", at_least=1)
    live_check_seconds: float = _knob(10.0, "Live pages",
        "Interval at which the rights of a browser that watches a view which is not public are checked "
        "again: one look at its session and user, and one call of `may_watch` for each view.",
        at_least=1.0)

    link_max_frame_bytes: int = _knob(_LINK.max_frame_bytes, "Links",
        "Size at which a batch is closed. A batch is larger only if a single message is.",
        at_least=1024)
    link_max_frame_messages: int = _knob(_LINK.max_frame_messages, "Links",
        "Maximum number of messages in one batch.", at_least=1)
    link_max_message_bytes: int = _knob(_LINK.max_message_bytes, "Links",
        "Maximum bytes of one message; a larger one is refused. The channel layer carries at most "
        "1 MiB.", at_least=1024)
    link_max_queue_messages: int = _knob(_LINK.max_queue_messages, "Links",
        "Maximum number of messages waiting to be sent to one process. More are refused.",
        at_least=1)
    link_max_queue_bytes: int = _knob(_LINK.max_queue_bytes, "Links",
        "Maximum bytes of these messages.", at_least=65_536)
    link_window_bytes: int = _knob(_LINK.window_bytes, "Links",
        "Maximum bytes sent to one process and not yet acknowledged. Redis holds at most this for "
        "each link.", at_least=65_536)
    link_window_frames: int = _knob(_LINK.window_frames, "Links",
        "Maximum number of batches sent to one process and not yet acknowledged. The capacity of "
        "the `core` layer should be greater.", at_least=1)
    link_resend_after_seconds: float = _knob(_LINK.resend_after_seconds, "Links",
        "Shortest time without an acknowledgement after which a batch is sent again.", above=0.0)
    link_ack_delay_seconds: float = _knob(_LINK.ack_delay_seconds, "Links",
        "How long an acknowledgement may wait for a batch that can carry it.", above=0.0)
    link_idle_after_seconds: float = _knob(_LINK.idle_after_seconds, "Links",
        "A link without traffic for this time is closed. The next message opens a new one.",
        above=0.0)
    # fmt: on

    # -- As the parts take them ----------------------------------------------------------------

    def _part(self, part: Callable[..., T], **more: Any) -> T:
        """Make a part from the keys that have it as their target."""
        mine = {
            target.field: getattr(self, key.name)
            for key in dataclasses.fields(self)
            for target in key.metadata["knob"].targets
            if target.part is part
        }
        return part(**{**mine, **more})

    @cached_property
    def lifeline(self) -> LifelineSettings:
        return self._part(LifelineSettings)

    @cached_property
    def link_place(self) -> tuple[str, int] | None:
        """Host and port of `LINK_ADDRESS`; port 0: a free one. Raises ValueError."""
        if not self.link_address:
            return None
        parts = urlsplit(f"//{self.link_address}")
        if not parts.hostname or parts.path or parts.query or parts.username is not None:
            raise ValueError("it must be a host, or a host and a port")
        return parts.hostname, parts.port or 0

    @cached_property
    def link_limits(self) -> LinkLimits:
        return self._part(LinkLimits)

    @cached_property
    def region_limits(self) -> RegionLimits:
        return self._part(RegionLimits)

    @cached_property
    def coordination(self) -> CoordinatorSettings:
        return self._part(CoordinatorSettings)

    @cached_property
    def shard_leases(self) -> LeaseTerms:
        return self._part(LeaseTerms)

    @property
    def journal_weights(self) -> dict[str, float]:
        """The weights of the journals by their names (`protocol.journals`)."""
        return {
            CLUSTERS_OWN if alias == self.database else alias: float(weight)
            for alias, weight in self.journals.items()
        }

    @property
    def further_journals(self) -> tuple[str, ...]:
        """The aliases of the journals beside the one in the cluster's own database."""
        return tuple(alias for alias in self.journals if alias != self.database)

    @property
    def recovery_rate(self) -> tuple[int, float] | None:
        if not self.entity_recovery_number:
            return None
        return self.entity_recovery_number, self.entity_recovery_interval_seconds

    @cached_property
    def allocation(self) -> ShardAllocationStrategy:
        if not self.rebalance_absolute_limit:
            return self._part(ThresholdAllocation)
        return self._part(LeastShardAllocation)

    @cached_property
    def type_defaults(self) -> ShardingSettings:
        """The settings of a type that sets none itself."""
        return self._part(ShardingSettings)

    @property
    def personal_secrets(self) -> tuple[bytes, ...]:
        return tuple(key.encode() for key in self.personal_keys)

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
        """Return a node's configuration. Arguments, from the command line say, override
        settings.
        """
        mine = self.roles if roles is None else roles
        return self._part(
            NodeConfig,
            name=name,
            host=host,
            pid=pid,
            roles=mine,
            app_version=app_version or self.app_version,
            candidate=self.may_coordinate(mine),
            recovery=self._part(RecoveryLimits),
            deliveries=self._part(DeliverySettings, back_off=self._part(BackOff)),
            region=self.region_limits,
            links=self.link_limits,
            coordinator=self.coordination,
            shard_leases=self.shard_leases,
            steering_keys=tuple(key.encode() for key in self.steering_keys or self.keys),
            unguarded=not (development or self.keys or self.steering_keys),
            recovery_rate=self.recovery_rate,
            strategy_of=lambda _: self.allocation,
            check_state=development,
        )

    def quotes_errors(self, *, otherwise: bool) -> bool:
        return otherwise if self.quote_errors is None else self.quote_errors

    def may_coordinate(self, roles: tuple[str, ...]) -> bool:
        """Tell whether a node with these roles may become coordinator."""
        return self.coordinator if isinstance(self.coordinator, bool) else self.coordinator in roles
