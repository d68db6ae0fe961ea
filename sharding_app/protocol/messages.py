"""The whole wire protocol on one page: every message that two processes exchange.

A closed set of tagged, schema-checked structs (promise 12). They travel inside a `Frame` of a link
(`protocol.link.link`), encoded as MessagePack arrays. The names are those of Akka's Cluster
Sharding. Fields may be added only at the end and with a default: releases N-1 and N run mixed.

Every coordinator message carries the term it was sent in, every shard message the epoch it speaks
of. Receivers ignore older ones, and act on a row of the store, never on a message alone (promise
7).
"""

from enum import StrEnum
from typing import Annotated, Union

import msgspec

from sharding_app.protocol.ids import Epoch, Incarnation, ShardId, Term
from sharding_app.protocol.numbering import Numbering

WIRE_VERSION = 1
LARGEST = 1.7976931348623157e308
"""The largest float."""
MOST_LATER = 1000
"""A command goes again with at most this many names of later ones."""
Finite = Annotated[float, msgspec.Meta(ge=-LARGEST, le=LARGEST)]
"""A number that can be counted and shown: NaN and infinity are refused at decoding."""


class Message(msgspec.Struct, array_like=True, gc=False, tag_field="tag"):
    """Base of all messages."""


class OfShards(Message):
    """A message with an epoch for each of its shards."""

    def __post_init__(self) -> None:
        """Refuse lists of different lengths, at decoding too, so that no receiver has to check."""
        shards, epochs = getattr(self, "shards", ()), getattr(self, "epochs", ())
        if len(shards) != len(epochs):
            raise ValueError("shards and epochs differ in length")


# -- Envelopes: between the region of the asker and the shard's home -------------------------------


class Delivery(msgspec.Struct, array_like=True, gc=False):
    """The durable message or timer that a command carries: its row goes with the command's
    effect.
    """

    id: str
    reply_to: tuple[str, str, str] | None = None
    "Type and id of the entity that wants the result, and the command that it wants it as."
    again: tuple[str, int] | None = None
    """Of a repeating timer: the id and the time (microseconds since 1970) that its row goes on
    with."""
    key: str | None = None
    "Of a timer."
    attempt: int = 1
    journal: str = ""
    "The name of the journal in which its row lies; empty: the cluster's."


class Deliver(Message, tag=1):
    """One command for one entity.

    `request` names it between these two processes, in the order of the calls.
    """

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
    """When the command was called, by the clock of the process that holds the message: in a frame
    the writer's, as `Frame.clock` is, and from its arrival on the reader's (`protocol.link.link`).
    Every wait is included.
    """
    deadline_ms: int = 0
    "Until when the asker waits, by the same clock; 0: no caller waits (tell)."
    chain: tuple[str, ...] = ()
    "Entities whose commands led to this one, as 'type/id', outermost first."
    trace: str = ""
    delivery: Delivery | None = None
    "Of a durable message or timer."
    later: Annotated[tuple[int | str, ...], msgspec.Meta(max_length=MOST_LATER)] = ()
    """Of a command that is sent again: later calls of its asker that were outstanding with it at a
    home that died, by their callers' ids or their requests."""


class Answer(Message, tag=2):
    """The command is handled and, where it persisted, committed."""

    request: int
    value: bytes


class Failed(Message, tag=3):
    """The command is handled and failed: `code` is an error's stable name
    (`sharding_app.errors`).
    """

    request: int
    code: str
    message: str
    params: bytes = b""


class Done(Message, tag=4):
    """These tells are handled."""

    requests: list[int]


class HandBack(Message, tag=5):
    """This process is not (or no longer) the home of the shard at that epoch; these were not
    handled.
    """

    type: str
    shard: ShardId
    epoch: Epoch
    requests: list[int]


# -- Region and coordinator ------------------------------------------------------------------------


class Register(Message, tag=10):
    """From a node: my row is written, read it. Repeated until acknowledged."""

    incarnation: Incarnation
    term: Term = 0
    "The term of the coordinator that the node has heard: both directions between the two work."


class RegisterProxy(Message, tag=11):
    """From a process that hosts nothing: tell me of moves of the types that I use."""

    incarnation: Incarnation
    types: list[str]


class RegisterAck(Message, tag=12):
    """From the coordinator of this term: your row is read.

    A node answers with Register at once, until `heard`.
    """

    term: Term
    coordinator: Incarnation
    heard: bool = False
    "Your Register with this term has arrived: you may be given shards."


class GetShardHome(Message, tag=13):
    """Where do these shards live? Places those that have no home."""

    type: str
    shards: list[ShardId]
    numbering: Numbering | None = None
    """Numbers by which the asker knows the shards, if they have ever changed. An asker with others
    than the present ones is told these. Their revision does not say it: after a failover that has
    lost steps of a resize, others can have the same."""


class ShardHome(OfShards, tag=14):
    """These shards live there, at these epochs (same length), and are started."""

    term: Term
    type: str
    home: Incarnation
    shards: list[ShardId]
    epochs: list[Epoch]


class NoHome(Message, tag=15):
    """No live node hosts the type, or these shards of it (`reason` says more): the asker fails
    waiting calls.
    """

    term: Term
    type: str
    reason: str
    shards: list[ShardId] = []
    "The shards concerned; empty: all of the type."


class HostShard(OfShards, tag=16):
    """Start these shards, as your rows say. Repeated until ShardStarted."""

    term: Term
    type: str
    shards: list[ShardId]
    epochs: list[Epoch]


class ShardStarted(OfShards, tag=17):
    """These shards run. Answers a HostShard of that term."""

    term: Term
    type: str
    shards: list[ShardId]
    epochs: list[Epoch]


class BeginHandOff(Message, tag=18):
    """Hold messages for these shards until their new home is announced."""

    term: Term
    type: str
    shards: list[ShardId]


class BeginHandOffAck(Message, tag=19):
    term: Term
    type: str
    shards: list[ShardId]


class HandOff(OfShards, tag=20):
    """To the home: stop these shards' entities, hand back unhandled messages, then say
    ShardStopped.
    """

    term: Term
    type: str
    shards: list[ShardId]
    epochs: list[Epoch]


class ShardStopped(OfShards, tag=21):
    type: str
    shards: list[ShardId]
    epochs: list[Epoch]
    given_up: bool = False
    "No hand-off: their home cannot go on (it has lost their leases), and asks for other homes."


class GracefulShutdownReq(Message, tag=22):
    """A region asks the coordinator to move all its shards away."""

    incarnation: Incarnation
    types: list[str]


class NodeGone(Message, tag=23):
    """That incarnation is fenced: it can no longer commit for any shard. Its links end."""

    term: Term
    incarnation: Incarnation


class Renumbered(Message, tag=28):
    """The type's ids belong to shards by these numbers now: a resize has begun, gone on or ended.

    Comes before any message that rests on it. Of two the one with the higher era of its term, then
    the one with the higher revision counts.
    """

    term: Term
    type: str
    numbering: Numbering


class Announcement(Message, tag=26):
    """Messages of the coordinator that are the same for many processes, encoded once.

    Each counts as if it had come alone.
    """

    words: list[ShardHome | BeginHandOff | NodeGone | Renumbered]


class Suspect(Message, tag=24):
    """I get no acknowledgement from these processes: look at their lifelines now."""

    incarnations: list[Incarnation]


class Echo(Message, tag=25):
    """A node's message to itself through the channel layer, which shows that it is not deaf."""

    number: int


class Left(Message, tag=27):
    """That node has given up all its shards and is about to end: for a moment it hands back what
    still comes. Sent by a proxy about itself: it has ended.
    """

    incarnation: Incarnation


# -- Questions about running nodes: best effort, no decision depends on the answers --------------


class GetShardRegionState(Message, tag=30):
    """To a node: which shards of these types (none named: of all) do you host now?"""

    request: int
    types: list[str] = []


class FailedStart(msgspec.Struct, array_like=True, gc=False):
    """One entity that cannot be brought into memory."""

    entity: str
    shard: ShardId
    error: str
    "The class of the last error of its constructor, its recovery or its journal."
    attempts: int
    "Failed attempts in a row."
    since_seconds: Finite
    "Since the first failed attempt."
    retry_seconds: Finite
    "Until the next attempt; below 0: the next message makes the next attempt."


NEARLY_FULL = 0.9
"""The part of its limit from which a region counts as full."""


class RegionState(msgspec.Struct, array_like=True, gc=False):
    """The shards of one type at home in one node, and how many entities each holds in memory (all
    of one length).
    """

    type: str
    shards: list[ShardId]
    epochs: list[Epoch]
    entities: list[int]
    cannot_start: int = 0
    "Entities that run without a message (remembered ones, singletons) and cannot be started now."
    failed_starts: list[FailedStart] = []
    "Some of these."
    limit: int = 0
    "Most entities in memory, over all of these shards; 0: no limit."

    @property
    def is_full(self) -> bool:
        """Whether entities leave memory for others, or are about to.

        Shards do not fill up evenly.
        """
        return 0 < NEARLY_FULL * self.limit <= sum(self.entities)


class ShardRegionState(Message, tag=31):
    """Answer to GetShardRegionState.

    `refused` names the types that the node may not host, and why.
    """

    request: int
    regions: list[RegionState]
    refused: dict[str, str] = {}
    asked_in_vain: list[str] = []
    "From the coordinator: types that no node hosts and that were asked for recently."
    by_layer: int = 0
    "Processes that this node reaches over the channel layer for want of a direct connection."
    layer_away_seconds: int = 0
    "Time for which this node has not heard itself through a channel layer beside direct links."


class GetNodeStats(Message, tag=32):
    """To a node: send your counters since your start, and your condition."""

    request: int


class SlowCommand(msgspec.Struct, array_like=True, gc=False):
    """One of the slowest commands that a node has timed lately. No arguments."""

    age_seconds: Finite
    entity: str
    command: str
    seconds: Finite
    "From its arrival at the home to its answer."


class TypeStats(msgspec.Struct, array_like=True, gc=False):
    """One type in one node. `latency` counts sampled commands by `protocol.histogram.SECONDS`."""

    type: str
    shards: int
    entities: int
    commands: int
    counters: dict[str, int]
    latency: list[int]
    latency_sum: Finite
    hottest: list[tuple[str, ShardId, int]]
    """Entities that got the most commands recently, each with a number that is larger for hotter
    ones."""
    cannot_start: int = 0
    "Entities that could not be brought into memory lately."
    failed_starts: list[FailedStart] = []
    "Some of these."
    slowest: list[SlowCommand] = []
    "Of the commands that were timed in the last minutes."
    hot_shards: list[tuple[ShardId, int]] = []
    "Shards that got the most commands recently, with numbers as those of `hottest`."


class Trouble(msgspec.Struct, array_like=True, gc=False):
    """One command that failed in a node, or was refused there. No arguments, no state."""

    age_seconds: Finite
    type: str
    entity: str
    command: str
    reason: str


class Coordination(msgspec.Struct, array_like=True, gc=False):
    """A coordinator's work in progress."""

    term: Term
    rebalancing: bool
    handing_off: int
    queued: int
    starting: int
    waiting: int
    failing: dict[str, str] = {}
    "Types whose allocation strategy failed at its last call, and how."
    strategy_failures: dict[str, int] = {}
    "Failures of the strategy, by type."
    heard: list[Incarnation] = []
    "Members that may be given shards: both directions between them and the coordinator work."


class NodeStats(Message, tag=33):
    """Answer to GetNodeStats.

    Counters only grow: two answers give the rates between them, by `clock`.
    """

    request: int
    clock: Finite
    "The node's own clock."
    gauges: dict[str, Finite]
    counters: dict[str, int]
    histograms: dict[str, tuple[list[int], Finite]]
    "Counts by the bounds of `protocol.histogram`, and the sum of the values."
    types: list[TypeStats]
    drops: list[tuple[str, str, int]]
    "Type, reason and number of commands that this node had asked for and that were not delivered."
    troubles: list[Trouble]
    coordination: Coordination | None = None
    writers: list[tuple[str, str, ShardId, int]] = []
    """Entities that stored the most events recently, by samples of the appends: type, entity,
    shard, and a number that is larger for busier ones."""


class OperatorRequest(Message, tag=34):
    """An operator's request, to the coordinator about shards or to a node about itself or an
    entity.
    """

    request: int
    action: str
    type: str = ""
    shard: ShardId = -1
    entity: str = ""
    target: Incarnation = ""
    by: str = ""
    "The operator's name, for the log and the timeline."
    seal: bytes = b""
    "Seal of the other fields, the sender and the receiver, made with a key for steering."
    mark: str = ""
    "Of an entity that is to be removed: as it was when its archive was written."


class ReplyCode(StrEnum):
    """The outcome of an operator's request, for the program that has sent it."""

    DONE = "done"
    REFUSED = "refused"
    "It makes no sense now, or is not allowed."
    BUSY = "busy"
    "The entity is at work, or is being erased: it can be asked for again."
    AWAY = "away"
    "The shard is not at home there: its home can be asked."
    LEFT = "left"
    "The archived entity is in use, or not as it was: it stays. The count's name says why."
    NOT_COORDINATOR = "not_coordinator"
    "The request is for the coordinator: the one that is elected now can be asked."

    @classmethod
    def _missing_(cls, value: object) -> "ReplyCode":
        """Read the code of a newer release as a refusal: its text says more."""
        return cls.REFUSED


class OperatorReply(Message, tag=35):
    """The outcome of an OperatorRequest.

    `text` is for the operator: no program decides anything by it.
    """

    request: int
    code: ReplyCode
    text: str
    counts: dict[str, int] = {}
    "Rows erased, at all or so far."

    @property
    def ok(self) -> bool:
        return self.code is ReplyCode.DONE


class GetEntities(Message, tag=36):
    """To a shard's home: which entities are in memory, from this id on?"""

    request: int
    type: str
    shard: ShardId
    after: str = ""
    limit: int = 100
    entity: str = ""
    "If it is given: this one alone."


class EntityState(msgspec.Struct, array_like=True, gc=False):
    """One entity in memory, without its state."""

    entity: str
    seq: int
    doing: str
    "'loading', 'idle' or 'busy'"
    waiting: int
    "Commands in its mailbox."
    idle_seconds: Finite


class Entities(Message, tag=37):
    """Answer to GetEntities, in the order of the ids. `epoch` 0: the shard does not live there."""

    request: int
    epoch: Epoch
    total: int
    entities: list[EntityState]


class GetNodeTrend(Message, tag=40):
    """To a node: send your figures over time, one sample for each of these periods."""

    request: int
    period: int
    "Seconds: one of `protocol.trend.SPANS`."
    type: str = ""
    "The figures of this type alone; empty: of the node."


MAX_SAMPLES = 1000
Samples = Annotated[list[Finite | None], msgspec.Meta(max_length=MAX_SAMPLES)]
"""Values, oldest first; None: nothing was counted."""


class NodeTrend(Message, tag=41):
    """Answer to GetNodeTrend. A node that keeps no samples of that period, or type, sends none."""

    request: int
    period: int
    clock: Finite
    "The node's own clock, now."
    began: Finite
    "The time of its first reading, by that clock."
    at: Annotated[list[Finite], msgspec.Meta(max_length=MAX_SAMPLES)]
    "The end of each sample, by that clock."
    figures: dict[str, Samples]
    "By the names of `protocol.trend`: one value for each sample."
    type: str = ""
    """As it was asked for. A node of a release that keeps none of types does not repeat it, and has
    sent its own figures."""

    def __post_init__(self) -> None:
        """Refuse lists of different lengths, at decoding too."""
        if any(len(values) != len(self.at) for values in self.figures.values()):
            raise ValueError("samples and their times differ in length")


# -- Calls that wait long: best effort, sent again each second ------------------------------------


class Wait(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A call that one entity waits for and another has not answered."""

    caller: Incarnation
    "The process of the entity that waits. With `request` it names the call."
    request: int
    home: Incarnation
    "The process of the entity that is called."
    type: str
    entity: str
    command: str


class WaitProbe(Message, tag=38):
    """To the home of the last call of `way`: follow the calls on which its entity depends
    (`protocol.deadlock`).
    """

    type: str
    entity: str
    "The entity at which the probe began. It is where the way has to end."
    way: Annotated[list[Wait], msgspec.Meta(min_length=1)]
    "The calls that the probe has followed."
    known: list[Wait] = []
    "In the second round: the circle that the first one found."


class Busy(Message, tag=39):
    """To the process of callers whose time is nearly over: the reason why they still wait."""

    requests: list[int]
    command: str
    "The command that the entity handles."
    seconds: Finite
    running: bool = False
    "It is the callers' own command; otherwise theirs wait behind it."
    calls: list[str] = []
    "The calls that it waits for, as 'type/id.command'."
    rows: bool = False
    "It writes rows of a user's in a transaction."
    blocked: str = ""
    "What that transaction waits for in the server, if that is known."


AnyMessage = Union[  # noqa: UP007  (msgspec wants the classic spelling in an alias on 3.11)
    Deliver, Answer, Failed, Done, HandBack,
    Register, RegisterProxy, RegisterAck, GetShardHome, ShardHome, NoHome, HostShard, ShardStarted,
    BeginHandOff, BeginHandOffAck, HandOff, ShardStopped, GracefulShutdownReq, NodeGone, Announcement, Suspect, Echo,
    Renumbered,
    Left,
    GetShardRegionState, ShardRegionState, GetNodeStats, NodeStats, OperatorRequest, OperatorReply,
    GetEntities, Entities, GetNodeTrend, NodeTrend, WaitProbe, Busy,
]  # fmt: skip


class Frame(msgspec.Struct, array_like=True, gc=False):
    """One channel-layer message: a batch of one link, numbered, with an acknowledgement of the
    other direction.

    `stream` numbers the link's direction (a later one replaces an earlier one), `seq` counts its
    frames from 1; `seq` 0 carries an acknowledgement only. `ack` is the highest frame of the peer's
    `ack_stream` up to which all were taken in, `credit` the number of bytes that the peer may have
    under way.
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
    "Lower bound of the reader's clock at that moment; 0: the writer has not heard the reader yet."
