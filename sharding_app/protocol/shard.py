"""The home's side of one shard: which entity handles which envelope when, and which are handed
back.

    Entity (slot)

      (none) ──first envelope──> LOADING ──loaded──> BUSY <──> IDLE ──idle for long──> GONE
                                  │  ↑                │  │
                                  │  └──object fails──┘  └──has stopped──> GONE, or LOADING for
                                  └──cannot load──> GONE                   envelopes that wait
    Shard

      RUNNING ──HandOff──> STOPPING (hands back waiting envelopes, ends entities) ──> stopped

Contract: an entity handles one envelope at a time, in the order of arrival; BUSY lasts until its
events are committed. An idle slot owns nothing but its object, its place in the dict and in the
order of recency. Mailboxes are bounded.

The machine answers with the next step; handlers, the journal and time are the shell's. So is the
class of the slots: a shell keeps its own fields of an entity there.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import Any, Generic, TypeVar

from sharding_app.protocol.ids import EntityId, Epoch, Incarnation, ShardId
from sharding_app.protocol.messages import Deliver
from sharding_app.protocol.passivation.recency import LeastRecentlyUsed, Tracked
from sharding_app.protocol.passivation.strategy import Strategy
from sharding_app.protocol.transitions import transitions

Work = tuple[Incarnation, Deliver]
"""An envelope and its sender."""


class SlotState(IntEnum):
    LOADING = 0
    IDLE = 1
    BUSY = 2
    GONE = 3
    "Not in memory any more. An entity that comes back has a new slot."


class Verdict(IntEnum):
    """The decision about an envelope that has just come."""

    RUN = 0
    LOAD = 1
    QUEUED = 2
    FULL = 3
    HAND_BACK = 4


# Each command needs some of them, and on Python 3.11 a look-up of `SlotState.IDLE` costs more than
# two calls.
LOADING, IDLE, BUSY, GONE = SlotState
RUN, LOAD, QUEUED, FULL, HAND_BACK = Verdict

SLOT = transitions(
    "slot",
    {
        LOADING: [BUSY, GONE],
        IDLE: [BUSY, LOADING, GONE],
        BUSY: [IDLE, LOADING, GONE],
        GONE: [],
    },
)


class Slot(Tracked):
    """One entity in memory. Its place is in the shard's order of recency."""

    __slots__ = (
        "ended",
        "entity",
        "generation",
        "last_word",
        "mailbox",
        "node",
        "passivating",
        "pending",
        "shard",
        "state",
        "touched",
    )

    def __init__(self, entity_id: EntityId, shard: "Shard[Any]") -> None:
        super().__init__(entity_id)
        self.shard = shard
        self.node: Tracked | None = None
        "Its element in the shard's strategy, if that is not by recency alone."
        self.state: SlotState = LOADING
        self.entity: object | None = None
        self.generation = 0
        """Number of times that the object was dropped: a commit of an earlier one must not be
        acknowledged."""
        self.mailbox: deque[Work] | None = None
        self.passivating = False
        "It is to stop: envelopes that come wait until it is loaded again."
        self.last_word: Work | None = None
        "The stop message that it still has to get."
        self.ended = False
        "It has nothing more to do before it stops."
        self.pending = 0
        "Commands of a pipelined type that lack only their commit."
        self.touched = 0.0

    @property
    def is_idle(self) -> bool:
        return self.state is IDLE and not self.pending and not self.passivating

    @property
    def is_gone(self) -> bool:
        return self.state is GONE

    def drop_object(self) -> None:
        """Let go of the object and its commits: nothing of it may be acknowledged any more."""
        self.generation += 1
        self.entity = None
        self.pending = 0


S = TypeVar("S", bound=Slot)


class Shard(Generic[S]):
    """One shard at home here, at one epoch."""

    __slots__ = (
        "busy", "closed", "epoch", "evicted", "lingering", "mailbox_limit", "most", "number", "recency", "slots",
        "stopping", "strategy", "type", "_new_slot",
    )  # fmt: skip

    def __init__(
        self,
        type_name: str,
        number: ShardId,
        epoch: Epoch,
        new_slot: "Callable[[EntityId, Shard[S]], S]",
        mailbox_limit: int = 1000,
    ) -> None:
        self._new_slot = new_slot
        self.type = type_name
        self.number = number
        self.epoch = epoch
        self.slots: dict[EntityId, S] = {}
        self.stopping = False
        self.closed = False
        "Its lease is lost, or it has left: envelopes that have not begun must not begin."
        self.busy = 0
        "Slots that load or run: a stopping shard has stopped when there are none."
        self.lingering = 0
        "Slots that got their stop message and have not stopped."
        self.mailbox_limit = mailbox_limit
        self.recency = LeastRecentlyUsed()
        "The order of the entities to which messages came."
        self.most = 0
        "Most entities in memory, if no strategy says otherwise; 0: no limit."
        self.strategy: Strategy | None = None
        self.evicted: list[S] = []
        "Slots that have to leave memory for others; the shell takes them from here."

    def limit(self, most: int, strategy: Strategy | None = None) -> None:
        """Limit the entities in memory to `most`.

        `strategy`: the first one of this shard; without any the least recently used go. Entities
        that are here already take their places in it in the order of recency.
        """
        if not most:
            self.most, self.strategy = 0, None
            for slot in self.slots.values():
                slot.node = None
            return
        if strategy is not None:
            self.strategy = strategy
        if self.strategy is not None:
            self._evict([self.slots[each.id] for each in self.strategy.resized(most)])
            if strategy is not None:
                self._introduce(strategy)
            return
        self.most = most
        while self.recency.size > most:
            self._evict([self.recency.oldest])

    def deliver(self, source: Incarnation, message: Deliver, now: float) -> tuple[Verdict, S | None]:
        """Decide about an envelope.

        RUN and LOAD make the slot busy: the shell owes a `finished` or `loaded`.
        """
        if self.stopping or message.epoch != self.epoch:
            return HAND_BACK, None
        slot = self.slots.get(message.entity)
        if slot is None:
            slot = self.slots[message.entity] = self._new_slot(message.entity, self)
            slot.mailbox = deque(((source, message),))
            self._use(slot, now)
            self.busy += 1
            return LOAD, slot
        if not source:
            pass  # an entity's own message, by a timer for example, is no use of it
        elif slot.place is None or self.strategy is not None:
            self._use(slot, now)
        else:
            slot.touched = now
            self.recency.renew(slot)
        # One that stops behind its commits has handled its last message. Others may wait already.
        if slot.state is IDLE and not slot.passivating and not (slot.ended and slot.pending):
            slot.state = SLOT[slot.state][BUSY]
            self.busy += 1
            return RUN, slot
        if slot.mailbox is None:
            slot.mailbox = deque()
        elif len(slot.mailbox) >= self.mailbox_limit:
            return FULL, slot
        slot.mailbox.append((source, message))
        return QUEUED, slot

    def withdraw(self, slot: S) -> None:
        """Take the envelope that was queued last out of the mailbox: it does not wait."""
        if slot.mailbox is not None:
            slot.mailbox.pop()
            slot.mailbox = slot.mailbox or None

    def withdraw_call(self, slot: S, source: Incarnation, request: int) -> Work | None:
        """Take one call out of the mailbox; None: it does not wait there."""
        for work in slot.mailbox or ():
            if work[0] == source and work[1].request == request:
                if slot.mailbox is not None:
                    slot.mailbox.remove(work)
                    slot.mailbox = slot.mailbox or None
                return work
        return None

    def put_first(self, slot: S, work: Work) -> None:
        """Put back the envelope that a busy slot has run, and has to run again.

        It is one at most, so a mailbox never has more than one over its limit.
        """
        if slot.mailbox is None:
            slot.mailbox = deque()
        slot.mailbox.appendleft(work)

    def put_back(self, slot: S, works: "Sequence[Work]") -> "Sequence[Work]":
        """Put back envelopes that were answered beside a busy slot's own one. Their order stays.

        Returns the last ones, for which there is no room.
        """
        if slot.mailbox is None:
            slot.mailbox = deque()
        room = max(self.mailbox_limit - len(slot.mailbox), 0)
        slot.mailbox.extendleft(reversed(works[:room]))
        return works[room:]

    def start(self, entity_id: EntityId, now: float) -> S | None:
        """Load an entity without a message; None: it is there already, or the shard is stopping."""
        if self.stopping or entity_id in self.slots:
            return None
        slot = self.slots[entity_id] = self._new_slot(entity_id, self)
        slot.touched = now
        self.busy += 1
        return slot

    def loaded(self, slot: S) -> None:
        """Take in that the object is there; `finished` returns its first envelope."""
        slot.state = SLOT[slot.state][BUSY]

    def finished(self, slot: S) -> Work | None:
        """Take in that a handler has ended and its events are committed.

        Returns the envelope to run next.

        None: the slot is idle now; or gone, if it has stopped; or LOADING again, because envelopes
        came while it stopped: the shell loads it.
        """
        mailbox = slot.mailbox
        if slot.passivating or slot.ended:
            return self._stops(slot)
        if mailbox:
            work = mailbox.popleft()
            if not mailbox:
                slot.mailbox = None
            return work
        slot.state = SLOT[slot.state][IDLE]
        self.busy -= 1
        return None

    def passivate(self, slot: S, last_word: Work | None = None) -> bool:
        """Let an entity stop: after its stop message, if there is one.

        True: the shell runs `finished` for it now.
        """
        if slot.passivating:
            return False
        slot.passivating = True
        slot.last_word = last_word
        slot.ended = last_word is None
        if slot.state is not IDLE:
            return False
        slot.state = SLOT[slot.state][BUSY]
        self.busy += 1
        return True

    @staticmethod
    def had_last_word(slot: Slot) -> bool:
        """Tell whether it has its stop message and has not stopped: it acts on that message now."""
        return slot.passivating and not slot.ended and slot.last_word is None

    def end(self, slot: S) -> bool:
        """Stop an entity that has ignored its stop message for too long.

        True: the shell runs `finished` for it now.
        """
        if slot.state is not IDLE or not slot.passivating:
            return False
        slot.ended = True
        self.lingering -= 1
        slot.state = SLOT[slot.state][BUSY]
        self.busy += 1
        return True

    def _stops(self, slot: S) -> Work | None:
        """Take one step of an entity that is to stop."""
        if slot.last_word is not None and not slot.ended:
            work, slot.last_word = slot.last_word, None
            return work
        if slot.ended and not slot.pending:
            if slot.mailbox:
                slot.passivating = slot.ended = False
                slot.last_word = None
                if slot.state is not LOADING:  # otherwise its object is dropped already
                    self.reload(slot)
                return None
            self._forget(slot)
            slot.entity = None
        else:
            if not slot.ended:
                self.lingering += 1
            slot.state = SLOT[slot.state][IDLE]
        self.busy -= 1
        return None

    def overlaps(self, slot: S) -> None:
        """Count a command that lacks only its commit (pipelining): the next one may run, the shard
        may not stop yet.
        """
        slot.pending += 1
        self.busy += 1

    def settled(self, slot: S) -> bool:
        """Take in the commit of such a command.

        True: it was the last one that an entity waited for before it stops. The shell runs
        `finished` for it now.
        """
        slot.pending -= 1
        self.busy -= 1
        if not slot.ended or slot.state is not IDLE or slot.pending:
            return False
        slot.state = SLOT[slot.state][BUSY]
        self.busy += 1
        return True

    def reload(self, slot: S) -> None:
        """Drop its object after a failed handler or commit: it loads before the next envelope."""
        self.busy -= slot.pending
        if slot.state is IDLE:
            self.busy += 1
            if slot.passivating and not slot.ended:
                self.lingering -= 1
        slot.drop_object()
        slot.state = SLOT[slot.state][LOADING]

    def drop(self, slot: S) -> list[Work]:
        """Remove a slot at once; return the envelopes that wait for it."""
        if slot.state is GONE:
            return []
        self.busy -= slot.pending
        if slot.state is not IDLE:
            self.busy -= 1
        elif slot.passivating and not slot.ended:
            self.lingering -= 1
        self._forget(slot)
        slot.drop_object()
        waiting, slot.mailbox = list(slot.mailbox or ()), None
        return waiting

    def stop(self) -> list[Work]:
        """Begin to stop: nothing new is run. Returns all waiting envelopes, to be handed back."""
        self.stopping = True
        back: list[Work] = []
        for slot in list(self.slots.values()):
            if slot.mailbox:
                back.extend(slot.mailbox)
            slot.mailbox = None
        return back

    @property
    def stopped(self) -> bool:
        return self.stopping and not self.busy and not self.lingering

    def idle(self) -> list[S]:
        """Return entities that do nothing and for which nothing waits."""
        return [slot for slot in self.slots.values() if slot.is_idle]

    def due(self, before: float, most: int) -> list[S]:
        """Return idle entities to which no message came since `before`, the first `most` of them.

        The search ends at the first entity that was used later.
        """
        found: list[S] = []
        slot: S | None = self.recency.oldest
        while slot is not None and slot.touched < before and len(found) < most:
            if slot.is_idle:
                found.append(slot)
            slot = slot.newer
        return found

    def _use(self, slot: S, now: float) -> None:
        """Take in that a message has come for it."""
        slot.touched = now
        recency = self.recency
        if slot.place is None:
            recency.add(slot)
            if self.most and recency.size > self.most:
                self._evict([recency.oldest])
        else:
            recency.renew(slot)
        if self.strategy is not None:
            self._rank(slot, self.strategy)

    def _introduce(self, strategy: Strategy) -> None:
        slot: S | None = self.recency.oldest
        while slot is not None:
            newer: S | None = slot.newer
            self._rank(slot, strategy)
            slot = newer

    def _rank(self, slot: S, strategy: Strategy) -> None:
        if slot.node is None:
            slot.node = Tracked(slot.id)
        self._evict([self.slots[each.id] for each in strategy.touched(slot.node)])

    def _evict(self, slots: Iterable[S]) -> None:
        for slot in slots:
            self.recency.remove(slot)
            slot.node = None
            self.evicted.append(slot)

    def _forget(self, slot: S) -> None:
        slot.state = SLOT[slot.state][GONE]
        del self.slots[slot.id]
        if slot.place is not None:
            self.recency.remove(slot)
            if slot.node is not None and self.strategy is not None:
                self.strategy.removed(slot.node)
