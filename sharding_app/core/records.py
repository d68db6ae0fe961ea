"""The rows that the cluster's decisions stand on, as values. The store reads and writes them (`ports.store`)."""

from typing import Literal

import msgspec

from sharding_app.core.ids import Epoch, Incarnation, ShardId, Term

MemberState = Literal["joining", "up", "leaving"]
ShardStep = Literal["home", "handoff", "stopped"]
LeaveRequest = Literal["leave", "prepare", "stop"]
"""What an operator asked of a node: hand everything over and go; expect that the whole cluster stops, so that nothing
moves any more; go, with the whole cluster."""


class TypeConfig(msgspec.Struct, frozen=True):
    """What must be equal on every node that hosts a type (promise 11)."""

    name: str
    kind: str
    number_of_shards: int
    extractor: str
    hash_version: str
    "Of the hash, with the fingerprint of the shards that some fixed ids lead to."
    role: str
    store_mode: str


class Lineage(msgspec.Struct, frozen=True):
    """Which line of commits a server goes on with. A promotion and a restore begin another timeline; a server that was filled
    from a dump is another system. What was read in one lineage may be missing in the next."""

    system: str
    timeline: int


class Server(msgspec.Struct, frozen=True):
    """Which run of which Postgres: a restart or a failover changes it."""

    started: str
    timeline: int
    system: str = ""

    @property
    def lineage(self) -> Lineage:
        return Lineage(self.system, self.timeline)


class Backend(msgspec.Struct, frozen=True):
    """One server process of ours: the pid alone could have been given to somebody else since."""

    pid: int
    started: str


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A node's row, with what the server's lock table says of its lifeline."""

    incarnation: Incarnation
    name: str
    host: str
    pid: int
    age: int
    "Order of joining, kept over reconnects: the lowest live one is the oldest member."
    state: MemberState
    roles: tuple[str, ...] = ()
    app_version: str = "0.0.0"
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
    "Versions of the wire: the lowest and the highest that it reads, and the one that it writes."
    locks: int = 0
    "How many of its two lifeline locks are held right now (0, 1, 2)."


class ShardRow(msgspec.Struct, frozen=True):
    """Where a shard lives. `home` is None exactly when `step` is 'stopped'."""

    type: str
    shard: ShardId
    epoch: Epoch
    home: Incarnation | None
    step: ShardStep


class HomeChange(msgspec.Struct, frozen=True):
    """One decision about one shard: takes effect if the row still has `expected_epoch` (0: there is no row yet)."""

    type: str
    shard: ShardId
    expected_epoch: Epoch
    epoch: Epoch
    home: Incarnation | None
    step: ShardStep


class CoordinatorRow(msgspec.Struct, frozen=True):
    term: Term
    incarnation: Incarnation | None


class News(msgspec.Struct, frozen=True):
    """What a node looks for in the rows every second."""

    term: Term
    coordinator: Incarnation | None
    "Who raised the term last."
    asked: LeaveRequest | None
    "What an operator asks of the node."
    state: MemberState | None
    "What the node's row says that it is; None: there is no row."
    deaf: bool


class Decision(msgspec.Struct, frozen=True):
    """A line of the timeline: what was decided, about whom. No payloads."""

    action: str
    subject: str
    detail: str = ""
