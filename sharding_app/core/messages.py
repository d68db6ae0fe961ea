"""The whole wire protocol on one page: every message that two processes exchange.

A closed set of tagged, schema-checked structs (promise 12). They travel inside a `Frame` of a link
(`core.link`), encoded as MessagePack arrays. The names are the reference's. Fields may be added at the end with a
default, and only so: releases N-1 and N run mixed.

Every coordinator message carries the term it was sent in, every shard message the epoch it speaks of: receivers
ignore older ones, and act on a row of the store, never on a message alone (promise 7).
"""

from typing import Annotated, Union

import msgspec

from sharding_app.core.ids import Epoch, Incarnation, ShardId, Term

WIRE_VERSION = 1
LARGEST = 1.7976931348623157e308
"""Of all floats."""
Finite = Annotated[float, msgspec.Meta(ge=-LARGEST, le=LARGEST)]
"""A number that can be counted and shown. Other floats are refused at decoding: NaN and infinity have no words."""


class Message(msgspec.Struct, array_like=True, gc=False, tag_field="tag"):
    """What all messages share."""


class OfShards(Message):
    """A message with an epoch for each of its shards."""

    def __post_init__(self) -> None:
        """Refuse, at decoding too, lists that do not fit together: no receiver has to look again."""
        shards, epochs = getattr(self, "shards", ()), getattr(self, "epochs", ())
        if len(shards) != len(epochs):
            raise ValueError("shards and epochs differ in length")


# -- Envelopes: between the region of the asker and the shard's home ----------------------------------------------


class Deliver(Message, tag=1):
    """One command for one entity. `request` names it between these two processes, in the order of the calls."""

    type: str
    shard: ShardId
    epoch: Epoch
    entity: str
    request: int
    command: str
    args: bytes
    command_id: str = ""
    attempt: int = 1
    born_ms: int = 0
    """When it was called, by the clock of the process that holds the message: in a frame the writer's, as `Frame.clock` is,
    and from its arrival on the reader's (`core.link`). No wait is left out, wherever it was."""
    deadline_ms: int = 0
    "Until when the asker waits, by the same clock; 0: no caller waits (tell)."
    chain: tuple[str, ...] = ()
    "Entities whose commands led to this one: 'type/id' of each, outermost first."
    trace: str = ""


class Answer(Message, tag=2):
    """The command is handled and, where it persisted, committed."""

    request: int
    value: bytes


class Failed(Message, tag=3):
    """The command is handled and failed: `code` is an error's stable name (`sharding_app.errors`)."""

    request: int
    code: str
    message: str
    params: bytes = b""


class Done(Message, tag=4):
    """These tells are handled."""

    requests: list[int]


class HandBack(Message, tag=5):
    """This process is not (or no longer) the home of the shard at that epoch; these were not handled."""

    type: str
    shard: ShardId
    epoch: Epoch
    requests: list[int]


# -- Region and coordinator ----------------------------------------------------------------------------------------


class Register(Message, tag=10):
    """A node: my row is written, look at it. Repeated until acknowledged."""

    incarnation: Incarnation
    term: Term = 0
    "Of the coordinator that it has heard from: both ways between the two work."


class RegisterProxy(Message, tag=11):
    """A process that hosts nothing wants to be told of moves of the types it uses."""

    incarnation: Incarnation
    types: list[str]


class RegisterAck(Message, tag=12):
    """The coordinator of this term has your row. A node answers it with Register at once, until it has been heard."""

    term: Term
    coordinator: Incarnation
    heard: bool = False
    "Your Register with this term has arrived: you may be given shards."


class GetShardHome(Message, tag=13):
    """Where do these shards live? Allocates those that live nowhere."""

    type: str
    shards: list[ShardId]


class ShardHome(OfShards, tag=14):
    """These shards live there, at these epochs (same length), and are started."""

    term: Term
    type: str
    home: Incarnation
    shards: list[ShardId]
    epochs: list[Epoch]


class NoHome(Message, tag=15):
    """No live node hosts the type (`reason` says more), or not these shards of it: the asker fails what waits."""

    term: Term
    type: str
    reason: str
    shards: list[ShardId] = []
    "Of these alone; empty: of all."


class HostShard(OfShards, tag=16):
    """Start these shards: your rows say so. Repeated until ShardStarted."""

    term: Term
    type: str
    shards: list[ShardId]
    epochs: list[Epoch]


class ShardStarted(OfShards, tag=17):
    type: str
    shards: list[ShardId]
    epochs: list[Epoch]


class BeginHandOff(Message, tag=18):
    """Stop sending to these shards, buffer instead, until their new home is told."""

    term: Term
    type: str
    shards: list[ShardId]


class BeginHandOffAck(Message, tag=19):
    term: Term
    type: str
    shards: list[ShardId]


class HandOff(OfShards, tag=20):
    """Home: stop these shards' entities, hand back what is not handled, then say ShardStopped."""

    term: Term
    type: str
    shards: list[ShardId]
    epochs: list[Epoch]


class ShardStopped(OfShards, tag=21):
    type: str
    shards: list[ShardId]
    epochs: list[Epoch]
    given_up: bool = False
    "Not for a hand-off: their home cannot go on (it has lost their leases), and wants other homes for them."


class GracefulShutdownReq(Message, tag=22):
    """A region asks the coordinator to move all its shards away."""

    incarnation: Incarnation
    types: list[str]


class NodeGone(Message, tag=23):
    """That incarnation is fenced: it can no longer commit for any shard. Its links are at their end."""

    term: Term
    incarnation: Incarnation


class Announcement(Message, tag=26):
    """Words of the coordinator that are the same for many: written once, sent to all whom they concern. Each is taken as if
    it had come alone."""

    words: list[ShardHome | BeginHandOff | NodeGone]


class Suspect(Message, tag=24):
    """I get no acknowledgement from these processes: look at their lifelines now."""

    incarnations: list[Incarnation]


class Echo(Message, tag=25):
    """A node's word to itself through the channel layer: is it deaf?"""

    number: int


class Left(Message, tag=27):
    """That node has given up all its shards and is about to end: what still comes there is handed back, for a moment. Of a
    process that only asks, and by itself: it has ended."""

    incarnation: Incarnation


# -- Questions about what runs: best effort, nothing is decided by their answers ------------------------------------


class GetShardRegionState(Message, tag=30):
    """To a node: what do you host now, of these types (none named: of all)?"""

    request: int
    types: list[str] = []


class FailedStart(msgspec.Struct, array_like=True, gc=False):
    """One entity that cannot be brought into memory."""

    entity: str
    shard: ShardId
    error: str
    "The class of what its constructor, its recovery or its journal raised last."
    attempts: int
    "In a row."
    since_seconds: Finite
    "Since the first of them."
    retry_seconds: Finite
    "Until the next attempt; below 0: the next message is the next attempt."


NEARLY_FULL = 0.9
"""Of its limit, when a region counts as full."""


class RegionState(msgspec.Struct, array_like=True, gc=False):
    """The shards of one type at home in one node, and how many entities each holds in memory (all of one length)."""

    type: str
    shards: list[ShardId]
    epochs: list[Epoch]
    entities: list[int]
    cannot_start: int = 0
    "Entities that run without a message (remembered ones, singletons) and cannot be started now."
    failed_starts: list[FailedStart] = []
    "Some of these."
    limit: int = 0
    "How many entities may be in memory, over all of these shards; 0: any number."

    @property
    def is_full(self) -> bool:
        """Whether entities leave the memory for others, or are about to. Shards do not fill up evenly."""
        return 0 < NEARLY_FULL * self.limit <= sum(self.entities)


class ShardRegionState(Message, tag=31):
    """The answer. `refused` names the types that the node may not host, and why."""

    request: int
    regions: list[RegionState]
    refused: dict[str, str] = {}
    asked_in_vain: list[str] = []
    "Of the coordinator: types that no node hosts and that were asked for of late."


class GetNodeStats(Message, tag=32):
    """To a node: what have you done since your start, and how are you?"""

    request: int


class TypeStats(msgspec.Struct, array_like=True, gc=False):
    """One type in one node. `latency` counts sampled commands by `core.histogram.SECONDS`."""

    type: str
    shards: int
    entities: int
    commands: int
    counters: dict[str, int]
    latency: list[int]
    latency_sum: Finite
    hottest: list[tuple[str, ShardId, int]]
    "Entities that get most commands of late, with a number that is larger for hotter ones."
    cannot_start: int = 0
    "Entities that could not be brought into memory lately."
    failed_starts: list[FailedStart] = []
    "Some of these."


class Trouble(msgspec.Struct, array_like=True, gc=False):
    """One command that failed in a node, or was refused there. No arguments, no state."""

    age_seconds: Finite
    type: str
    entity: str
    command: str
    reason: str


class Coordination(msgspec.Struct, array_like=True, gc=False):
    """What a coordinator has in hand."""

    term: Term
    rebalancing: bool
    handing_off: int
    queued: int
    starting: int
    waiting: int
    failing: dict[str, str] = {}
    "Types whose allocation strategy failed when it was asked last, and how."
    strategy_failures: dict[str, int] = {}
    "How often it did, by type."
    heard: list[Incarnation] = []
    "Members that may be given shards: both ways between them and the coordinator work."


class NodeStats(Message, tag=33):
    """The answer. Counters only grow, so that two answers give the rates between them, by `clock`."""

    request: int
    clock: Finite
    "The node's own."
    gauges: dict[str, Finite]
    counters: dict[str, int]
    histograms: dict[str, tuple[list[int], Finite]]
    "Counts by the bounds of `core.histogram`, and the sum of the values."
    types: list[TypeStats]
    drops: list[tuple[str, str, int]]
    "Type, reason, how many: commands that this node had asked for and that were not delivered."
    troubles: list[Trouble]
    coordination: Coordination | None = None


class Steer(Message, tag=34):
    """An operator's wish: to the coordinator about shards, to a node about itself or an entity there."""

    request: int
    action: str
    type: str = ""
    shard: ShardId = -1
    entity: str = ""
    target: Incarnation = ""
    by: str = ""
    "Who wants it, for the log and the timeline."
    seal: bytes = b""
    "Made with a key for steering, of the rest, the sender and the receiver."


class Steered(Message, tag=35):
    """What came of it, in words for the operator."""

    request: int
    ok: bool
    text: str
    again: bool = False
    "The same wish may be granted in a moment."
    counts: dict[str, int] = {}


class GetEntities(Message, tag=36):
    """To a shard's home: who is in memory there, from this id on?"""

    request: int
    type: str
    shard: ShardId
    after: str = ""
    limit: int = 100


class EntityState(msgspec.Struct, array_like=True, gc=False):
    """One entity in memory. No state of it."""

    entity: str
    seq: int
    doing: str
    "'loading', 'idle' or 'busy'"
    waiting: int
    "Commands in its mailbox."
    idle_seconds: Finite


class Entities(Message, tag=37):
    """The answer, in the order of the ids. `epoch` 0: the shard does not live there."""

    request: int
    epoch: Epoch
    total: int
    entities: list[EntityState]


AnyMessage = Union[  # noqa: UP007  (msgspec wants the classic spelling in an alias on 3.11)
    Deliver, Answer, Failed, Done, HandBack,
    Register, RegisterProxy, RegisterAck, GetShardHome, ShardHome, NoHome, HostShard, ShardStarted,
    BeginHandOff, BeginHandOffAck, HandOff, ShardStopped, GracefulShutdownReq, NodeGone, Announcement, Suspect, Echo,
    Left,
    GetShardRegionState, ShardRegionState, GetNodeStats, NodeStats, Steer, Steered,
    GetEntities, Entities,
]  # fmt: skip


class Frame(msgspec.Struct, array_like=True, gc=False):
    """One channel-layer message: a batch of one link, numbered, with an acknowledgement of the other direction.

    `stream` numbers the link's direction (a later one replaces an earlier one), `seq` counts its frames from 1;
    `seq` 0 carries an acknowledgement only. `ack` is the highest frame of the peer's `ack_stream` up to which all
    were taken in, `credit` how many more bytes the peer may have under way.
    """

    wire: int
    source: Incarnation
    target: Incarnation
    stream: int
    seq: int
    ack_stream: int
    ack: int
    credit: int
    body: list[AnyMessage]
    clock: int = 0
    "The writer's clock when this frame was sent, or sent again, in milliseconds."
    yours: int = 0
    "What the reader's clock had reached by then, at least; 0: the writer has not heard the reader yet."
