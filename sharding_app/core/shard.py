"""The home's side of one shard: which entity handles which envelope when, and what is handed back.

    Entity (slot)

      (none) ──first envelope──> LOADING ──loaded──> BUSY <──> IDLE ──passivate, idle too long──> (none)
                                    │                 │
                                    └──cannot load────┴──failed──> (none): what waits is failed or loads it anew

    Shard

      RUNNING ──HandOff──> STOPPING (hands back what waits, ends what runs) ──> stopped

Contract: an entity handles one envelope at a time, in the order of arrival; BUSY lasts until what it persisted is
committed. A slot that is idle owns nothing but its object, its place in the dict and in the order of recency. Mailboxes are bounded.
The machine answers with what to do next; handlers, the journal and time are the shell's.
"""

from collections import deque
from collections.abc import Iterable
from enum import IntEnum

from sharding_app.core.ids import EntityId, Epoch, Incarnation, ShardId
from sharding_app.core.messages import Deliver
from sharding_app.core.passivation import Strategy
from sharding_app.core.recency import LeastRecentlyUsed, Tracked

Work = tuple[Incarnation, Deliver]
"""An envelope and who sent it."""


class SlotState(IntEnum):
    LOADING = 0
    IDLE = 1
    BUSY = 2


class Verdict(IntEnum):
    """What to do with an envelope that has just come."""

    RUN = 0
    LOAD = 1
    QUEUED = 2
    FULL = 3
    HAND_BACK = 4


class Slot(Tracked):
    """One entity in memory. Its place is in the shard's order of recency."""

    __slots__ = (
        "ended",
        "entity",
        "generation",
        "ids",
        "known_since",
        "last_word",
        "mailbox",
        "node",
        "passivating",
        "pending",
        "seq",
        "shard",
        "snapshot_seq",
        "state",
        "stored",
        "tail",
        "touched",
    )

    def __init__(self, entity_id: EntityId, shard: "Shard") -> None:
        super().__init__(entity_id)
        self.shard = shard
        self.node: Tracked | None = None
        "What stands for it in the shard's strategy, if that is not by recency alone."
        self.state = SlotState.LOADING
        self.entity: object | None = None
        self.seq = 0
        self.snapshot_seq = 0
        self.generation = 0
        "Counts the times the object was thrown away: a commit of an earlier one must not be acknowledged."
        self.mailbox: deque[Work] | None = None
        self.passivating = False
        "It is to stop: what comes meanwhile waits for its next incarnation."
        self.last_word: Work | None = None
        "The stop message that it still has to get."
        self.ended = False
        "It has nothing more to do before it stops."
        self.pending = 0
        "Commands of a pipelined type that are over but for their commit."
        self.tail: object | None = None
        "The shell's: the last of those commits."
        self.stored: bytes | None = None
        "Of a durable-state entity: the fingerprint of the state that was stored last."
        self.touched = 0.0
        self.ids: dict[str, float] | None = None
        "The shell's: command ids that were put to the journal, and when."
        self.known_since: float | None = None
        "Since when all of these are there; None: it has not been loaded."

    @property
    def is_idle(self) -> bool:
        return self.state is SlotState.IDLE and not self.pending and not self.passivating


class Shard:
    """One shard at home here, at one epoch."""

    __slots__ = (
        "busy", "closed", "epoch", "evicted", "lingering", "mailbox_limit", "most", "number", "recency", "slots",
        "stopping", "strategy", "type",
    )  # fmt: skip

    def __init__(self, type_name: str, number: ShardId, epoch: Epoch, mailbox_limit: int = 1000) -> None:
        self.type = type_name
        self.number = number
        self.epoch = epoch
        self.slots: dict[EntityId, Slot] = {}
        self.stopping = False
        self.closed = False
        "Its lease is lost: what has been taken in and not begun must not begin."
        self.busy = 0
        "Slots that load or run: a stopping shard has stopped when there are none."
        self.lingering = 0
        "Slots that got their stop message and have not stopped."
        self.mailbox_limit = mailbox_limit
        self.recency = LeastRecentlyUsed()
        "Of the entities to which messages came."
        self.most = 0
        "So many of them may be in memory, if no strategy says otherwise; 0: any number."
        self.strategy: Strategy | None = None
        self.evicted: list[Slot] = []
        "Those that have to leave the memory for others; the shell takes them from here."

    def limit(self, most: int, strategy: Strategy | None = None) -> None:
        """Let so many entities be in memory; without a strategy the least recently used ones go."""
        if not most:
            self.most, self.strategy = 0, None
            for slot in self.slots.values():
                slot.node = None
            return
        if strategy is not None and self.strategy is None:
            self.strategy = strategy
        if self.strategy is not None:
            self._evict([self.slots[each.id] for each in self.strategy.resized(most)])
            return
        self.most = most
        while self.recency.size > most:
            self._evict([self.recency.oldest])

    def deliver(self, source: Incarnation, message: Deliver, now: float) -> tuple[Verdict, Slot | None]:
        """Decide about an envelope. RUN and LOAD make the slot busy: the shell owes a `finished` or `loaded`."""
        if self.stopping or message.epoch != self.epoch:
            return Verdict.HAND_BACK, None
        slot = self.slots.get(message.entity)
        if slot is None:
            slot = self.slots[message.entity] = Slot(message.entity, self)
            slot.mailbox = deque(((source, message),))
            self._use(slot, now)
            self.busy += 1
            return Verdict.LOAD, slot
        if not source:
            pass  # what an entity tells itself, by a timer say, is no use of it
        elif slot.place is None or self.strategy is not None:
            self._use(slot, now)
        else:
            slot.touched = now
            self.recency.renew(slot)
        if slot.state is SlotState.IDLE and not slot.passivating:
            slot.state = SlotState.BUSY
            self.busy += 1
            return Verdict.RUN, slot
        if slot.mailbox is None:
            slot.mailbox = deque()
        elif len(slot.mailbox) >= self.mailbox_limit:
            return Verdict.FULL, slot
        slot.mailbox.append((source, message))
        return Verdict.QUEUED, slot

    def put_first(self, slot: Slot, work: Work) -> None:
        """Put an envelope back that was taken out of a busy slot's mailbox and could not be begun."""
        if slot.mailbox is None:
            slot.mailbox = deque()
        slot.mailbox.appendleft(work)

    def start(self, entity_id: EntityId, now: float) -> Slot | None:
        """Load an entity without a message for it; None: it is there already, or the shard is stopping."""
        if self.stopping or entity_id in self.slots:
            return None
        slot = self.slots[entity_id] = Slot(entity_id, self)
        slot.touched = now
        self.busy += 1
        return slot

    def loaded(self, slot: Slot) -> None:
        """The object is there: `finished` says what comes next."""
        slot.state = SlotState.BUSY

    def finished(self, slot: Slot) -> Work | None:
        """A handler has ended and what it persisted is committed. Returns the envelope to run next.

        None: the slot is idle now; or gone, if it has stopped; or LOADING its next incarnation, for which envelopes
        came meanwhile: the shell loads it again.
        """
        mailbox = slot.mailbox
        if slot.passivating or slot.ended:
            return self._stops(slot)
        if mailbox:
            work = mailbox.popleft()
            if not mailbox:
                slot.mailbox = None
            return work
        slot.state = SlotState.IDLE
        self.busy -= 1
        return None

    def passivate(self, slot: Slot, last_word: Work | None = None) -> bool:
        """Let an entity stop: after its stop message, if there is one. True: the shell runs `finished` for it now."""
        if slot.passivating:
            return False
        slot.passivating = True
        slot.last_word = last_word
        slot.ended = last_word is None
        if slot.state is not SlotState.IDLE:
            return False
        slot.state = SlotState.BUSY
        self.busy += 1
        return True

    @staticmethod
    def had_last_word(slot: Slot) -> bool:
        """Whether it has been given its stop message, and has not stopped: what it does now it does because of that."""
        return slot.passivating and not slot.ended and slot.last_word is None

    def end(self, slot: Slot) -> bool:
        """It has ignored its stop message for too long. True: the shell runs `finished` for it now."""
        if slot.state is not SlotState.IDLE or not slot.passivating or self.slots.get(slot.id) is not slot:
            return False
        slot.ended = True
        self.lingering -= 1
        slot.state = SlotState.BUSY
        self.busy += 1
        return True

    def _stops(self, slot: Slot) -> Work | None:
        """One step of an entity that is to stop."""
        if slot.last_word is not None and not slot.ended:
            work, slot.last_word = slot.last_word, None
            return work
        if slot.ended and not slot.pending:
            if slot.mailbox:
                slot.passivating = slot.ended = False
                slot.last_word = None
                self.reload(slot)
                return None
            if self.slots.get(slot.id) is slot:
                self._forget(slot)
            slot.entity = None
        elif not slot.ended:
            self.lingering += 1
        slot.state = SlotState.IDLE
        self.busy -= 1
        return None

    def overlaps(self, slot: Slot) -> None:
        """A command is over but for its commit (pipelining): the next one may run, the shard may not stop yet."""
        slot.pending += 1
        self.busy += 1

    def settled(self, slot: Slot) -> None:
        """The commit of such a command is done."""
        slot.pending -= 1
        self.busy -= 1
        if slot.ended and slot.state is SlotState.IDLE and not slot.pending and not slot.mailbox:
            if self.slots.get(slot.id) is slot:
                self._forget(slot)
            slot.entity = None

    def reload(self, slot: Slot) -> None:
        """Its object was thrown away (a failed handler, a failed commit): it loads again before the next envelope."""
        self._forget_pending(slot)
        if slot.state is SlotState.IDLE:
            self.busy += 1
            if slot.passivating and not slot.ended:
                self.lingering -= 1
        slot.entity = None
        slot.generation += 1
        slot.state = SlotState.LOADING

    def drop(self, slot: Slot) -> list[Work]:
        """Remove a busy slot at once, whatever waits for it is returned."""
        if self.slots.get(slot.id) is not slot:
            return []
        self._forget(slot)
        self._forget_pending(slot)
        slot.generation += 1
        slot.entity = None
        if slot.state is not SlotState.IDLE:
            self.busy -= 1
            slot.state = SlotState.IDLE
        elif slot.passivating and not slot.ended:
            self.lingering -= 1
        waiting, slot.mailbox = list(slot.mailbox or ()), None
        return waiting

    def stop(self) -> list[Work]:
        """Begin to stop: nothing new is run. Returns all that waits, to be handed back."""
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

    def idle(self) -> list[Slot]:
        """Entities that do nothing and for which nothing waits."""
        return [slot for slot in self.slots.values() if slot.is_idle]

    def due(self, before: float, most: int) -> list[Slot]:
        """Idle entities to which no message came since that time, the first ones of them.

        Whatever stands behind the first that is not due is not looked at.
        """
        found: list[Slot] = []
        slot: Slot | None = self.recency.oldest
        while slot is not None and slot.touched < before and len(found) < most:
            if slot.is_idle:
                found.append(slot)
            slot = slot.newer
        return found

    def _use(self, slot: Slot, now: float) -> None:
        """A message has come for it."""
        slot.touched = now
        recency = self.recency
        if slot.place is None:
            recency.add(slot)
            if self.most and recency.size > self.most:
                self._evict([recency.oldest])
        else:
            recency.renew(slot)
        if self.strategy is not None:
            if slot.node is None:
                slot.node = Tracked(slot.id)
            self._evict([self.slots[each.id] for each in self.strategy.touched(slot.node)])

    def _evict(self, slots: Iterable[Slot]) -> None:
        for slot in slots:
            self.recency.remove(slot)
            slot.node = None
            self.evicted.append(slot)

    def _forget(self, slot: Slot) -> None:
        del self.slots[slot.id]
        if slot.place is not None:
            self.recency.remove(slot)
            if slot.node is not None and self.strategy is not None:
                self.strategy.removed(slot.node)

    def _forget_pending(self, slot: Slot) -> None:
        self.busy -= slot.pending
        slot.pending = 0
        slot.tail = None
