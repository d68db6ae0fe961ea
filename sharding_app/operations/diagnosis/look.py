"""The facts that an examination judges: values that `gather` has read.

A part that could not be read is None or empty, with the reason beside it; examinations skip it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from django.core.checks import CheckMessage

from sharding_app.operations.database_health import Health
from sharding_app.operations.journals import JournalFacts
from sharding_app.operations.projections import ProjectionLook
from sharding_app.operations.snapshot import ClusterSnapshot, NodeAnswers


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
    "VACUUM in our database must keep rows that this one could still see."
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
    "Settings of a new session of ours (pg_settings)."
    sessions: tuple[Session, ...] = ()
    prepared: tuple[Prepared, ...] = ()
    slots: tuple[ReplicationSlot, ...] = ()
    locked_keys: int = 0
    "Keys of personal data, of those looked at, that no secret of this process unwraps."
    unfinished_erasures: int = 0
    "Persons whose key is gone and whose own entities may be there."
    unfinished_imports: tuple[str, ...] = ()
    "Types of which an import has begun and not ended."
    unvacuumed: tuple[str, ...] = ()
    "Tables of ours for which autovacuum is switched off."
    copying_journal: bool = False
    "The journal is being copied into another layout."
    former_journal: bool = False
    "The table that it was in before is still there."
    partitioning: bool = False
    "A sharding_partition is at work."
    unpartitioned: bool = False
    "The settings want the journal partitioned, and it is one table."
    missing_migrations: tuple[str, ...] = ()
    unknown_migrations: tuple[str, ...] = ()
    "Applied by newer code than this."
    superuser: bool = False
    public_may_connect: bool = False
    health: Health | None = None
    other_place: str = ""
    "The database of the lifeline's alias, if it is another one."


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """A clock compared with this machine's, as exactly as the round trip allows."""

    who: str
    ahead_seconds: float
    uncertain_seconds: float
    rate: float | None = None
    "Its seconds for each of ours; None: not measured."
    rate_uncertain: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisLook:
    """One Redis behind the channel layer."""

    host: str
    version: str = ""
    max_memory: int = 0
    used_memory: int = 0
    policy: str = ""
    "maxmemory-policy; empty: the server does not reveal it."


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerLook:
    alias: str
    backend: str
    config: Mapping[str, Any]
    redis: tuple[RedisLook, ...] = ()
    strangers: tuple[str, ...] = ()
    "Nodes that listen under this cluster's id but are unknown to its database."
    trouble: str = ""
    "Why Redis could not be asked, where links do not depend on it."


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """A record that this code cannot read, without its content."""

    type: str
    entity: str
    seq: int
    kind: Literal["event", "snapshot"]
    what: str
    "The record in words, with the name and version of an event."
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalLook:
    """A sample of one type's journal, and of its remembered ids."""

    type: str
    installed: bool
    is_unread: bool = False
    "The server did not finish a read of it in time."
    remembers: bool = False
    looked_at: int = 0
    unreadable: tuple[Unreadable, ...] = ()
    gaps: tuple[tuple[str, int], ...] = ()
    "Entities whose sampled events skip a number: the id, and the number that is missing."
    long: tuple[tuple[str, int], ...] = ()
    "Entities whose recovery reads many events: the id and the number, the most first."
    kept: tuple[str, ...] = ()
    "Entities with events that should have been deleted two days ago."
    remembered: int = 0
    "Number of remembered ids that were read."
    unreadable_ids: tuple[tuple[str, str], ...] = ()
    "Remembered ids without a shard, and the reason."
    moved_ids: int = 0
    "Number of remembered ids that now belong to another shard."


@dataclass(frozen=True, slots=True, kw_only=True)
class FurtherLook:
    """One of several journals."""

    facts: JournalFacts
    unfenced: tuple[str, ...] = ()
    "Tables there without a fence that is on."
    lost_triggers: tuple[str, ...] = ()
    "Other triggers there that are missing or off, each with its table."
    room: int = 0
    "Connections for ordinary roles of its server; 0: not known."
    sessions: int = 0
    "Clients that are connected to its server, and nodes of ours among them."
    ours: int = 0
    refuted: tuple[tuple[str, int, str], ...] = ()
    """Shards that lie in it by the cluster's rows, though it says that they have moved: their type,
    their number, and where to."""
    deserted: tuple[tuple[str, int, str], ...] = ()
    """Shards that lie in another journal by the cluster's rows, though homes had them here, and no
    move has led them there: their type, their number, and where they lie."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Settings that the examinations compare with."""

    lease_ttl_seconds: float = 3.0
    hand_off_timeout_seconds: float = 60.0
    debug: bool = False
    keys: int = 0
    journal_connections: int = 2
    journals: tuple[str, ...] = ()
    "The further journals that the settings name."
    patience_seconds: float = 10.0
    "How long a shard may lack a home: a new coordinator is elected within a few seconds."


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    limits: Limits = field(default_factory=Limits)
    checks: tuple[CheckMessage, ...] = ()
    "Messages of this app's system checks."
    database: DatabaseLook | None = None
    database_trouble: str = ""
    has_refused: bool = False
    "The trouble is a refusal of its server: a right is missing, or a table."
    cluster: ClusterSnapshot | None = None
    nodes: NodeAnswers | None = None
    nodes_trouble: str = ""
    "Why no node could be asked; mostly the channel layer."
    refused_here: Mapping[str, str] = field(default_factory=dict)
    "Types whose configuration in this project differs from the cluster's, and how."
    declared_shards: Mapping[str, int] = field(default_factory=dict)
    "How many shards each type has by the code and the settings of this project."
    seals_broken: int = 0
    "Frames that arrived here and that none of this process's keys opens."
    refused: str = ""
    "Why this process may not join: its release is too far from the nodes'."
    layer: LayerLook | None = None
    clocks: tuple[Clock, ...] = ()
    journals: tuple[JournalLook, ...] = ()
    further: tuple[FurtherLook, ...] = ()
    "All journals, where there are several."
    projections: tuple[ProjectionLook, ...] = ()
