"""The rows on which the cluster's decisions stand, as values. The store reads and writes them
(`ports.store`).
"""

from typing import Literal

import msgspec

from sharding_app.protocol.ids import EntityId, Epoch, Incarnation, ShardId, Term
from sharding_app.protocol.numbering import Numbering

MemberState = Literal["joining", "up", "leaving"]
ShardStep = Literal["home", "handoff", "stopped", "copied"]
""" "copied": in a further journal, a copy that a move makes, and that no home has taken yet."""
LeaveRequest = Literal["leave", "prepare", "stop"]
"""An operator's request to a node. leave: hand everything over and go. prepare: the whole cluster
is about to stop, so nothing moves any more. stop: go, with the whole cluster."""


class TypeConfig(msgspec.Struct, frozen=True):
    """The settings of a type that must be equal on every node that hosts it (promise 11)."""

    name: str
    kind: str
    number_of_shards: int
    extractor: str
    hash_version: str
    "Version of the hash, with the fingerprint of the shards of some fixed ids."
    role: str
    store_mode: str
    wanted: int = 0
    "Of the rows: the number of shards that a resize is to reach; 0: none is under way."
    resized: int = 0
    "Of the rows: how many groups of shards the resize has changed (`protocol.numbering`)."
    revision: int = 0
    "Of the rows: how often the numbers of shards have changed."
    declared: tuple[int, ...] = ()
    "Of the rows: numbers that nodes may still declare, since resizes have begun or ended there."
    closings: int = 0
    """Of the rows: how often shards were closed for a move to another journal, or opened again."""

    @property
    def numbering(self) -> Numbering:
        return Numbering(self.number_of_shards, self.wanted, self.resized, self.revision)

    def shard_by_hash(self, entity: EntityId) -> ShardId | None:
        """Return the shard of an entity; None: an extractor of the type's own decides."""
        return self.numbering.shard_of(entity) if self.extractor.startswith("hash:") else None

    def as_declared(self, ours: "TypeConfig") -> "TypeConfig":
        """Return the cluster's configuration as a node has to declare it. A number that the shards
        have had, or will have, is as good as the present one: the rows say which holds.
        """
        number = self.number_of_shards
        if ours.number_of_shards in self.declared:
            number = ours.number_of_shards
        return TypeConfig(
            self.name, self.kind, number, self.extractor, self.hash_version, self.role, self.store_mode
        )


class Lineage(msgspec.Struct, frozen=True):
    """The line of commits that a server goes on with.

    A promotion and a restore begin another timeline; a server that was filled from a dump is
    another system. Data read in one lineage may be missing in the next.
    """

    system: str
    timeline: int


class Server(msgspec.Struct, frozen=True):
    """One run of one Postgres: a restart or a failover changes it."""

    started: str
    timeline: int
    system: str = ""

    @property
    def lineage(self) -> Lineage:
        return Lineage(self.system, self.timeline)


class Backend(msgspec.Struct, frozen=True):
    """One server process of ours. A pid alone may belong to another session by now."""

    pid: int
    started: str


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A node's row, with the state of its lifeline's locks in the server's lock table."""

    incarnation: Incarnation
    name: str
    host: str
    pid: int
    age: int
    "Order of joining, kept over reconnects: the lowest live one is the oldest member."
    state: MemberState
    roles: tuple[str, ...] = ()
    app_version: str = ""
    candidate: bool = True
    "May become coordinator."
    types: tuple[str, ...] = ()
    "Types it hosts: those whose configuration was accepted."
    deaf: bool = False
    server: Server | None = None
    "The server on which its lifeline was last established."
    backends: tuple[Backend, ...] = ()
    "Its journal and control connections, which the coordinator ends before it raises epochs."
    asked: LeaveRequest | None = None
    wire: tuple[int, int, int] = (1, 1, 1)
    "Wire versions: the lowest and the highest that it reads, and the one that it writes."
    addresses: tuple[str, ...] = ()
    "Where other processes connect to it directly."
    locks: int = 0
    "How many of its two lifeline locks are held right now (0, 1, 2)."


class ShardRow(msgspec.Struct, frozen=True):
    """Where a shard lives. `home` is None exactly when `step` is 'stopped' or 'copied'."""

    type: str
    shard: ShardId
    epoch: Epoch
    home: Incarnation | None
    step: ShardStep
    uses_messages: bool = False
    "An entity of the type has stored a message or a timer. Not told in the answer to a decision."
    numbering: Numbering | None = None
    "The numbers of the type's shards when the row was read. Told only where a node asks for rows."
    journal: str = ""
    "The journal in which its entities' rows lie (`protocol.journals`). Told as `numbering` is."


class HomeChange(msgspec.Struct, frozen=True):
    """One decision about one shard: takes effect if the row still has `expected_epoch` (0: there is
    no row yet).
    """

    type: str
    shard: ShardId
    expected_epoch: Epoch
    epoch: Epoch
    home: Incarnation | None
    step: ShardStep


class ClosedShard(msgspec.Struct, frozen=True):
    """A shard that has no home while the last of its rows move to another journal."""

    type: str
    shard: ShardId
    target: str
    "The journal to which it moves."


class StoredShard(msgspec.Struct, frozen=True):
    """A shard that lies in a further journal, as the rows there say."""

    type: str
    shard: ShardId
    epoch: Epoch
    journal: str
    step: ShardStep
    "A home has taken it last ('home'), it was taken from its home, or it is a copy."
    numbering: Numbering
    "The numbers of its type's shards that the journal knows."


class NumberOfWorkers(msgspec.Struct, frozen=True):
    """How many numbered workers a set has, and how many it is to have (`ShardedDaemonProcess`)."""

    type: str
    workers: int
    "The number in force: these workers run, or are about to."
    wanted: int
    "The number of a rescale that is under way; otherwise the same."
    revision: int = 0
    "How often the number in force has changed."

    @property
    def rescaling(self) -> bool:
        """Whether the old workers are still to be stopped everywhere."""
        return self.wanted != self.workers


class CoordinatorRow(msgspec.Struct, frozen=True):
    term: Term
    incarnation: Incarnation | None
    numbers: int = 0
    "The sum of the revisions of all types' numbers of shards, and of their closings."


class News(msgspec.Struct, frozen=True):
    """The values that a node reads from the rows every second."""

    term: Term
    coordinator: Incarnation | None
    "The node that raised the term last."
    asked: LeaveRequest | None
    "An operator's request to the node."
    state: MemberState | None
    "The state in the node's row; None: there is no row."
    deaf: bool
    uses_messages: bool = False
    "An entity of some type has stored a message or a timer."
    numbers: int = 0
    "The sum of the revisions of all types' numbers of shards, and of their closings."


class Decision(msgspec.Struct, frozen=True):
    """A line of the timeline: a decision and its subject. No payloads."""

    action: str
    subject: str
    detail: str = ""
