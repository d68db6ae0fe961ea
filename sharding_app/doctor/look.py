"""All that an examination may know: values that `gather` has read, and nothing that can be asked for more.

A part that could not be read is None, or empty, and the reason stands beside it: examinations then say nothing of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.core.checks import CheckMessage

from sharding_app.core.ids import Incarnation, ShardId
from sharding_app.core.messages import NodeStats, ShardRegionState
from sharding_app.core.records import CoordinatorRow, Member, TypeConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One connection of a client to the server, ours or another's."""

    pid: int
    application: str
    user: str
    state: str
    transaction_seconds: float | None
    "How long its transaction has been open; None: it has none."
    holds_snapshot: bool
    "VACUUM in our database may not remove what this one could still see."
    holds_up: str = ""
    "Tables of ours in which its locks may hold up writers."


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A prepared transaction in our database that is not finished."""

    name: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationSlot:
    name: str
    active: bool
    holds_snapshot: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseLook:
    """The server behind the cluster's alias."""

    alias: str
    settings: Mapping[str, str]
    "As a new session of ours would have them (pg_settings)."
    sessions: tuple[Session, ...] = ()
    prepared: tuple[Prepared, ...] = ()
    slots: tuple[ReplicationSlot, ...] = ()
    unvacuumed: tuple[str, ...] = ()
    "Tables of ours for which autovacuum is switched off."
    missing_migrations: tuple[str, ...] = ()
    unknown_migrations: tuple[str, ...] = ()
    "Applied by newer code than this."
    superuser: bool = False
    public_may_connect: bool = False
    other_place: str = ""
    "The lifeline's alias leads to another database than this one: which."


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """A clock compared with this machine's, as well as the way there allowed."""

    who: str
    ahead_seconds: float
    uncertain_seconds: float
    rate: float | None = None
    "Its seconds for each of ours; None: not measured."
    rate_uncertain: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardLook:
    """A shard whose row is not simply at home."""

    type: str
    shard: ShardId
    home: Incarnation | None
    step: str
    seconds: float
    "Since the row was last written."


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLook:
    """The rows, and what the nodes answered."""

    now: datetime
    cluster_id: str
    coordinator: CoordinatorRow
    members: tuple[Member, ...]
    types: tuple[TypeConfig, ...]
    numbers: Mapping[str, int] = field(default_factory=dict)
    "Of the types, as the journal's rows have them."
    shards: tuple[ShardLook, ...] = ()
    "Those that are not at home on a node that has a row; of very many only some."


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesLook:
    """What nodes said of themselves."""

    answers: Mapping[Incarnation, ShardRegionState]
    stats: Mapping[Incarnation, NodeStats]
    silent: frozenset[Incarnation]
    refused_here: Mapping[str, str] = field(default_factory=dict)
    "Types whose configuration in this project differs from the cluster's, and how."
    seals_broken: int = 0
    "Frames that came to this process and that none of its keys opens."


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisLook:
    """One Redis behind the channel layer."""

    host: str
    version: str = ""
    max_memory: int = 0
    used_memory: int = 0
    policy: str = ""
    "maxmemory-policy; empty: the server does not tell."


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerLook:
    alias: str
    backend: str
    config: Mapping[str, Any]
    redis: tuple[RedisLook, ...] = ()
    strangers: tuple[str, ...] = ()
    "Nodes that listen under this cluster's id, and that its database does not know."


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """A record that the code here cannot read. No content of it."""

    type: str
    entity: str
    seq: int
    what: str
    "'event' or 'snapshot', with the name and version of an event."
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalLook:
    """A sample of one type's journal, and of its remembered ids."""

    type: str
    installed: bool
    remembers: bool = False
    looked_at: int = 0
    unreadable: tuple[Unreadable, ...] = ()
    gaps: tuple[tuple[str, int], ...] = ()
    "Entities whose sampled events skip a number: the id, and the number that is missing."
    long: tuple[tuple[str, int], ...] = ()
    "Entities whose recovery reads very many events: the id, and how many, the most first."
    remembered: int = 0
    "Remembered ids that were looked at."
    unreadable_ids: tuple[tuple[str, str], ...] = ()
    "Remembered ids that lead to no shard, and why."
    moved_ids: int = 0
    "Remembered ids that now lead to another shard."


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Settings that examinations compare with."""

    lease_ttl_seconds: float = 3.0
    hand_off_timeout_seconds: float = 60.0
    debug: bool = False
    keys: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    limits: Limits = field(default_factory=Limits)
    checks: tuple[CheckMessage, ...] = ()
    "What Django's system checks of this app say."
    database: DatabaseLook | None = None
    database_trouble: str = ""
    cluster: ClusterLook | None = None
    nodes: NodesLook | None = None
    nodes_trouble: str = ""
    "Why no node could be asked: the channel layer, mostly."
    refused: str = ""
    "Why this process may not join: its release is too far from the nodes'."
    layer: LayerLook | None = None
    clocks: tuple[Clock, ...] = ()
    journals: tuple[JournalLook, ...] = ()
