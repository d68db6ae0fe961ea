"""The durable messages and timers of one shard, at its home: which one goes out when.

    Message (or one firing of a timer)

      QUEUED ──first of its pair, due──> SENT ──done, or gone──> OVER
        ^ ^                               │ └──failed, rejected──> WRITING ──parked, turned──> OVER
        │ └───────not delivered, early────┘                           │
        └────────────────set aside, moved on, or turned───────────────┘

Contract: messages of one owner to one target go out in the order in which they were staged, one
after the other. The next one goes out when the former is over: it has taken effect, is parked, or
was turned into a message to its owner. Each timer goes for itself. Nothing goes out before its
time. All times are seconds by the server's clock, as the node estimates it (`ServerClock.low`).

A delivery may be repeated at any time: the row in the journal decides which one takes effect. So
nothing here has to be exact, except the order of a pair.

A message without an answer is delivered again after a pause, for ever, and its row stays as it is:
a slow attempt may still take effect. If there is no room left, those behind it leave the memory,
and come back when it is over. So is one whose target cannot be reached now; after long
pauses its row is set aside. A message whose target has failed is set aside with a count, and parked
in the end. One that was rejected is final at once.

*Memory.* Only what is due soon is in memory, as far as there is room (`Memory`). The shell reads
pages of the rest. While there may be messages in the journal that are not in memory, new ones are
not taken in directly: they are read behind the earlier ones. Those that are staged while a page is
being read come behind its rows, if it has left nothing out. A pair whose first message is set aside
for long leaves the memory, until a page has that message again. The next page has those behind it.
Each page names such pairs, for a home that did not set them aside itself: what is staged meanwhile
waits behind them.

Calls change the state and append effects to `out`, in order; the shell carries them out.
"""

from bisect import insort
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from enum import IntEnum
from heapq import heapify, heappop, heappush
from typing import Any

import msgspec

from sharding_app.protocol.back_off import doubled
from sharding_app.protocol.delivery.memory import Memory
from sharding_app.protocol.delivery.recurrence import decode, fire
from sharding_app.protocol.transitions import transitions

HORIZON_SECONDS = 10.0
"""What is due within this time is kept in memory."""
LEAD_SECONDS = 1.0
"""Timers are read from the journal this long before they are due. It is less than the horizon, so
that a dense sequence of timers is read in pages."""
OVERHEAD_BYTES = 300
UNREADABLE = (ValueError, LookupError, OverflowError, OSError, msgspec.MsgspecError)
"""Errors about the spec of a repeating timer, or the file of its zone."""
COMPACT = 64
"""A heap with this many times for each message is made anew."""


class State(IntEnum):
    QUEUED = 0
    SENT = 1
    WRITING = 2
    "Its row is being changed in the journal."
    OVER = 3


QUEUED, SENT, WRITING, OVER = State

STATES = transitions(
    "message",
    {
        QUEUED: [SENT, WRITING, OVER],
        SENT: [QUEUED, WRITING, OVER],
        WRITING: [QUEUED, OVER],
        OVER: [],
    },
)


class Failure(IntEnum):
    """Why a delivery has not taken effect."""

    UNKNOWN = 0
    "No answer has come: the attempt may still take effect."
    UNREACHED = 1
    "The target was not reached: nothing of the attempt is under way."
    FAILED = 2
    "The target has failed. That is counted."
    REJECTED = 3
    "The target has rejected it: no further attempt changes that."
    PARKED = 4
    "It took effect partly, and its row is parked already."
    PARTLY = 5
    "It took effect partly, in another journal: its row is to be parked."
    UNJUDGED = 6
    """The asking side could not send it, or has given it up. That is counted. It may have taken
    effect in another journal: no home of its target has looked for a mark."""
    DIED = 7
    "The home of its target died with it. Two of these are one failure."


UNKNOWN, UNREACHED, FAILED, REJECTED, PARKED, PARTLY, UNJUDGED, DIED = Failure


class BackOff(msgspec.Struct, frozen=True):
    """When a message goes out again, and when no more."""

    failures: int = 10
    "After this many counted failures a message is final."
    first_seconds: float = 1.0
    "Pause after the first counted failure. It doubles with each."
    most_seconds: float = 600.0
    again_seconds: float = 0.1
    "Pause after the first attempt that is not counted. It doubles with each."
    again_most_seconds: float = 60.0

    def pause(self, failures: int) -> float:
        return doubled(self.first_seconds, failures - 1, self.most_seconds)

    def again(self, tries: int) -> float:
        return doubled(self.again_seconds, tries - 1, self.again_most_seconds)


Pair = tuple[str, str, str]
"""Owner, or "" for outside, target's type and target; of a timer its id alone."""


class Message(msgspec.Struct, eq=False, gc=False):
    """One row in memory: a message, or a timer."""

    id: str
    entity: str
    "The owner."
    seq: int
    position: int
    target_type: str
    target: str
    command: str
    args: bytes
    due: float
    key: str | None = None
    "Of a timer."
    every: str | None = None
    "Of a repeating timer."
    reply_to: str | None = None
    on_failure: str | None = None
    failures: int = 0
    tries: int = 0
    "Attempts in a row that are not counted."
    state: State = QUEUED
    at: float = 0.0
    "When it goes out, or out again."
    occasion: float | None = None
    "Of a repeating timer whose firing has failed: the time at which that was due."
    again: tuple[str, float] | None = None
    "Of a repeating timer: the id and the time that its row goes on with."
    outside: bool = False
    "It was stored from outside: it has no sender."
    alone: bool = False
    "It gets no answer, and those behind it stay in the journal."
    deaths: int = 0
    "Homes of its target that died with it, since its last failure that was counted."
    pair: Pair = ("", "", "")
    "Set once it is in memory."

    def become(self, state: State) -> None:
        self.state = STATES[self.state][state]

    @property
    def order(self) -> tuple[int, int]:
        return self.seq, self.position

    @property
    def attempt(self) -> int:
        return self.failures + self.tries + 1


# -- Effects ---------------------------------------------------------------------------------------


class Send(msgspec.Struct, frozen=True, gc=False):
    """Deliver it; report with `done`, `taken`, `gone`, `early` or `failed`."""

    message: Message


class SetAside(msgspec.Struct, frozen=True):
    """Let its row be due later; report with `set_aside`."""

    message: Message
    failures: int
    pause: float
    error: Any


class KeepAlone(msgspec.Struct, frozen=True):
    """Let the journal know that those behind it wait; report with `kept_alone`."""

    message: Message
    error: Any


class MoveOn(msgspec.Struct, frozen=True):
    """Let the row of a repeating timer go on without a firing; report with `moved_on`."""

    message: Message


class End(msgspec.Struct, frozen=True):
    """Delete its row, or let that of a repeating timer go on: it has taken effect in another
    journal. Report with `done`.
    """

    message: Message


class Park(msgspec.Struct, frozen=True):
    """Park its row; report with `over`."""

    message: Message
    error: Any


class Turn(msgspec.Struct, frozen=True):
    """Let its row become a message to its owner, with its failure; report with `turned`."""

    message: Message
    new: str
    error: Any


Change = SetAside | KeepAlone | MoveOn | Park | Turn
"""An effect that changes a row."""
Effect = Send | End | Change


class Deliveries:
    """The messages and timers of one shard. The shell gives it the time with each call."""

    def __init__(
        self,
        memory: Memory,
        new_id: Callable[[], str],
        back_off: BackOff | None = None,
        *,
        complete: bool,
        horizon_seconds: float = HORIZON_SECONDS,
    ) -> None:
        """`complete`: the journal has nothing of this shard yet. Otherwise a page is wanted."""
        self.out: list[Effect] = []
        self.messages: dict[str, Message] = {}
        "All that is in memory, by id."
        self.reading = False
        self._memory = memory
        self._new_id = new_id
        self._back_off = back_off or BackOff()
        self._horizon = horizon_seconds
        self._lead = min(LEAD_SECONDS, horizon_seconds / 2)
        self._more = not complete
        "The journal may have messages that are due and not in memory."
        self._missed = False
        "The page that is being read may lack some."
        self._since: list[Message] = []
        "Messages that were staged since that page began: they come behind its rows."
        self._next_due: float | None = None
        "When the first timer that is not in memory is due, as far as is known."
        self._ragged: set[Pair] = set()
        "Pairs with a message that is set aside: those behind it are in the journal only."
        self._unsure = False
        "There are more of them than the page has told."
        self._left: set[Pair] = set()
        "Those of them that were set aside since the page began that is being read."
        self._ended_keys: set[tuple[str, str]] = set()
        "Timers that were cancelled or replaced since then, by owner and key: it may have them."
        self._erased: set[str] = set()
        "Entities that were erased since then."
        self._unanswered = 0
        "Messages in memory whose targets have not answered."
        self._alone: dict[str, Pair] = {}
        "The pairs of messages behind which none is read, by the messages' ids."
        self._pairs: dict[Pair, list[Message]] = {}
        "In the order of staging; only the first of each may be under way."
        self._timers: dict[tuple[str, str], Message] = {}
        "By owner and key."
        self._times: list[tuple[float, int, str]] = []
        "Heap of the times at which messages may go out; outdated ones stay in it."
        self._count = 0
        self._bytes = 0
        memory.shards += 1

    def close(self) -> None:
        """Forget everything: the shard is not at home here any more."""
        self._memory.shards -= 1
        self._memory.rows -= len(self.messages) + len(self._since)
        self._memory.bytes -= self._bytes
        self.messages, self._since = {}, []

    @property
    def wake_at(self) -> float | None:
        """When `tick` has something to do; None: it waits for another call."""
        read_at = None if self._next_due is None or self.reading else self._next_due - self._lead
        if not self._times:
            return read_at
        tick_at = self._times[0][0]
        return tick_at if read_at is None else min(tick_at, read_at)

    @property
    def rests(self) -> bool:
        """Whether no time comes at which `tick` has something to do, and no page is wanted."""
        return not (self._times or self._more) and self._next_due is None

    def room_to_read(self, now: float) -> int:
        """Return how many messages may be read now; 0: no page is wanted."""
        if self.reading:
            return 0
        self._look_ahead(now)
        if not self._more:
            return 0
        # A page of a few rows costs as much as one of many: so wait until half of those are gone
        # that are on their way. The others may wait here for ever.
        room = self._room()
        return room if room >= len(self.messages) - self._unanswered else 0

    @property
    def alone(self) -> list[str]:
        """Messages in memory behind which a page has to leave out those of their pair."""
        return list(self._alone)

    # -- The journal -------------------------------------------------------------------------------

    def read_begins(self) -> list[str]:
        """Take in that a page is being read; return the ids that it has to leave out."""
        self.reading, self._missed = True, False
        for each in (self._left, self._ended_keys, self._erased):
            each.clear()
        self._next_due = None
        return list(self.messages)

    def page(
        self,
        found: Iterable[Message],
        *,
        more: bool,
        next_due: float | None,
        now: float,
        aside: Iterable[Pair] | None = (),
    ) -> None:
        """Take in a page. It has all rows that are due within the horizon and were not held, unless
        there are `more`; `next_due` is the first time beyond it. `aside` are the pairs with a
        message beyond it that was set aside; None: too many to tell.
        """
        self.reading = False
        self._more = more or self._missed
        self._missed = False
        if next_due is not None:
            self._later(next_due)
        self._ragged = self._left.union(aside or (), self._alone.values())
        self._unsure = aside is None
        since = self._no_longer_since()
        for each in found:
            if each.id in self.messages or _pair(each) in self._left:
                continue
            if self._is_outdated(each):
                self._more = True  # a row that has come after it may be left out here too
                continue
            if not self._room():
                self._more = True
                break
            self._take_in(each)
            self._wait(each, each.due)
        self.tick(now)
        self.staged(since, now)

    def unread(self) -> None:
        """Take in that the page could not be read: it is wanted still."""
        self.reading = False
        self._more = True
        self._no_longer_since()

    def look(self) -> None:
        """Want a page: the journal may have rows that were not told of here."""
        self._more = self._missed = True

    def staged(self, rows: Iterable[Message], now: float) -> None:
        """Take in rows that were committed just now."""
        for each in rows:
            if each.key is not None:
                self.cancelled(each.entity, each.key)
                if each.due > now + self._horizon:
                    self._later(each.due)
                elif self._others_first(now):
                    self.look()
                else:
                    self._begin(each, now)
            elif each.id in self.messages:
                pass  # a page has shown it already
            elif self.reading and not self._missed and self._has_room():
                self._since.append(each)
                self._weigh(each, 1)
            elif self._others_first(now):
                self.look()  # an earlier one of its pair may be in the journal only
            elif self._ragged and _pair(each) in self._ragged:
                pass  # it is read behind the one that was set aside
            else:
                self._begin(each, now)
        self.tick(now)

    def cancelled(self, entity: str, key: str) -> None:
        """Take in that a timer was cancelled or replaced. A firing under way finds its row gone."""
        if self.reading:
            self._ended_keys.add((entity, key))
        timer = self._timers.get((entity, key))
        if timer is not None:
            self._forget(timer)

    def erased(self, entity: str) -> None:
        """Forget all messages and timers of an entity that was erased."""
        for each in [each for each in self.messages.values() if each.entity == entity]:
            self._forget(each)
        if self.reading:
            self._erased.add(entity)
        self.look()  # none of its pairs waits any more

    def hurry(self, found: str, now: float) -> None:
        """Send a message without a further pause: an operator has changed its row."""
        message = self.messages.get(found)
        if message is not None and message.state is QUEUED:
            message.due = min(message.due, now)
            message.failures = 0
            message.alone = False
            self._alone.pop(found, None)
            self._wait(message, now)
            self.tick(now)

    # -- Outcomes of deliveries --------------------------------------------------------------------

    def taken(self, message: Message) -> None:
        """Take in that it has taken effect, and that its row is still there.

        Those behind it wait for the end of the row: until then a next home delivers it once more.
        """
        if message.state is not OVER:
            message.become(WRITING)
            self.out.append(End(message))

    def done(self, message: Message, now: float) -> None:
        """Take in that this delivery has taken effect, and that its row is gone."""
        if message.state is OVER:
            return
        self._end(message, now)
        if message.again is not None:
            self._goes_on(message, now)
        self.tick(now)

    def gone(self, message: Message, now: float) -> None:
        """Take in that the row was taken, cancelled or replaced before this delivery."""
        if message.state is OVER:
            return
        if message.every is not None:
            self.look()  # an earlier attempt may have let it go on, under an id that is not known here
        self._end(message, now)
        self.tick(now)

    def early(self, message: Message, seconds: float, now: float) -> None:
        """Take in that the row is due only in that number of seconds."""
        if message.state is OVER:
            return
        message.become(QUEUED)
        message.due = now + seconds
        self._wait(message, message.due)

    def failed(self, message: Message, why: Failure, error: Any, now: float) -> None:
        """Take in that the delivery has not taken effect, or not wholly.

        The error is the shell's: the machine only carries it.
        """
        if message.state is OVER:
            return
        if why is DIED:
            message.deaths = (message.deaths + 1) % 2
            why = UNKNOWN if message.deaths else UNJUDGED
        if why in (UNKNOWN, UNREACHED):
            self._unanswered += not message.tries
            message.tries += 1
            pause = self._back_off.again(message.tries)
            if why is UNREACHED and pause > self._horizon:
                message.become(WRITING)
                self.out.append(SetAside(message, message.failures, pause, error))
            elif why is UNKNOWN and not message.alone and self._keeps_others_out(message):
                message.become(WRITING)
                self.out.append(KeepAlone(message, error))
            else:
                message.become(QUEUED)
                self._wait(message, now + pause)
            return
        if why is PARKED:
            self._end(message, now)
            self.tick(now)
            return
        if why is PARTLY:
            message.become(WRITING)
            self.out.append(Park(message, error))
            return
        self._fail(message, why, error)

    def _fail(self, message: Message, why: Failure, error: Any) -> None:
        """Set a message aside whose failure counts, or end it.

        One that may have taken effect in another journal is not given back: both sides would act on
        it. It is parked. An operator's retry finds its mark, if there is one.
        """
        message.become(WRITING)
        failures = message.failures + 1
        final = why is REJECTED or failures >= self._back_off.failures
        if not final:
            self.out.append(SetAside(message, failures, self._back_off.pause(failures), error))
        elif message.on_failure is not None and why is not UNJUDGED:
            self.out.append(Turn(message, self._new_id(), error))
        elif why is REJECTED and message.again is not None:
            self.out.append(MoveOn(message))  # this firing is over, the timer is not
        else:
            self.out.append(Park(message, error))

    # -- Outcomes of changes -----------------------------------------------------------------------

    def set_aside(self, message: Message, failures: int, pause: float, now: float) -> None:
        """Take in that its row is due later."""
        if message.state is OVER:
            return
        due = now + pause
        if pause <= self._horizon:
            self._answered(message)
            message.failures = failures
            message.become(QUEUED)
            message.due = due
            self._wait(message, due)
            return
        pair = message.pair
        for each in list(self._pairs[pair]):
            self._forget(each)
        if message.key is None:
            self._ragged.add(pair)
            self._left.add(pair)
        self._later(due)

    def kept_alone(self, message: Message, now: float) -> None:
        """Take in that the journal knows that those behind it wait."""
        if message.state is OVER:
            return
        pair = _pair(message)
        for each in self._pairs[pair][1:]:
            self._forget(each)
        message.alone = True
        self._alone[message.id] = pair
        self._ragged.add(pair)
        self._left.add(pair)
        message.become(QUEUED)
        self._wait(message, now + self._back_off.again(message.tries))

    def moved_on(self, message: Message, now: float) -> None:
        """Take in that the row of a repeating timer goes on without a firing."""
        if message.state is not OVER:
            self._end(message, now)
            self._goes_on(message, now)
            self.tick(now)

    def over(self, message: Message, now: float) -> None:
        """Take in that its row is parked, or was gone."""
        if message.state is not OVER:
            self._end(message, now)
            self.tick(now)

    def turned(self, message: Message, made: Message, now: float) -> None:
        """Take in that its row has become a message to its owner."""
        if message.state is not OVER:
            self._end(message, now)
            self.staged((made,), now)

    # -- Time --------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Send what may go out by now."""
        if self._next_due is not None:
            self._look_ahead(now)
        times = self._times
        if not times:  # the usual case between messages that are due at once
            return
        while times and times[0][0] <= now:
            _, _, found = heappop(times)
            message = self.messages.get(found)
            if message is not None and message.state is QUEUED and message.at <= now:
                self._go(message, now)
        if len(times) > COMPACT + 2 * len(self.messages):
            self._times = [each for each in times if each[2] in self.messages]
            heapify(self._times)

    # -- Inside ------------------------------------------------------------------------------------

    def _go(self, message: Message, now: float) -> None:
        """Send a message that is due, if it is the first of its pair."""
        if self._pairs[message.pair][0] is not message:
            return
        if message.every is not None and message.again is None:
            try:
                occasion = message.due if message.occasion is None else message.occasion
                firing = fire(decode(message.every), _as_time(occasion), _as_time(now))
            except UNREADABLE as error:  # such as a time zone that this machine does not know
                self._fail(message, FAILED, error)
                return
            message.again = self._new_id(), firing.again.timestamp()
            if not firing.runs and message.occasion is None:  # one that has failed was not missed
                message.become(WRITING)
                self.out.append(MoveOn(message))
                return
        message.become(SENT)
        self.out.append(Send(message))

    def _goes_on(self, message: Message, now: float) -> None:
        """Take in a repeating timer at its next time, unless that one was replaced."""
        if message.again is None or (message.entity, message.key or "") in self._timers:
            return  # a page has shown it already
        new, due = message.again
        if due > now + self._horizon or self._others_first(now):
            self._later(due)
            return
        made = msgspec.structs.replace(
            message, id=new, due=due, at=0.0, occasion=None, again=None, failures=0, tries=0, state=QUEUED
        )
        self._take_in(made)
        self._wait(made, due)

    def _begin(self, message: Message, now: float) -> None:
        """Take in a message of which no earlier one is in the journal only."""
        self._take_in(message)
        if message.due <= now:
            self._go(message, now)
        else:
            self._wait(message, message.due)

    def _take_in(self, message: Message) -> None:
        self.messages[message.id] = message
        self._weigh(message, 1)
        if message.key is not None:
            self._timers[message.entity, message.key] = message
        message.pair = pair = _pair(message)
        queue = self._pairs.get(pair)
        if queue is None:
            self._pairs[pair] = [message]
            return
        last = queue[-1]
        if (last.seq, last.position) <= (message.seq, message.position):
            queue.append(message)
        else:
            # One that is under way stays the first: the others go out after it.
            insort(queue, message, lo=int(queue[0].state is not QUEUED), key=lambda each: each.order)

    def _weigh(self, message: Message, rows: int) -> None:
        memory, size = self._memory, rows * (len(message.args) + OVERHEAD_BYTES)
        self._bytes += size
        memory.rows += rows
        memory.bytes += size

    def _no_longer_since(self) -> list[Message]:
        """End the wait of those that were staged since a page began, and return them."""
        since, self._since = self._since, []
        for each in since:
            self._weigh(each, -1)
        return since

    def _wait(self, message: Message, until: float) -> None:
        message.at = until
        self._count += 1
        heappush(self._times, (until, self._count, message.id))

    def _later(self, due: float) -> None:
        if self._next_due is None or due < self._next_due:
            self._next_due = due

    def _end(self, message: Message, now: float) -> None:
        """End a message, and let the next one of its pair go."""
        self._forget(message)
        if message.alone:
            self.look()
        queue = self._pairs.get(message.pair)
        if queue is not None:
            following = queue[0]
            if following.state is QUEUED and following.at <= now:
                self._go(following, now)
            else:
                self._wait(following, max(following.at, now))

    def _forget(self, message: Message) -> None:
        message.become(OVER)
        self._answered(message)
        del self.messages[message.id]
        self._alone.pop(message.id, None)
        self._weigh(message, -1)
        if message.key is not None and self._timers.get((message.entity, message.key)) is message:
            del self._timers[message.entity, message.key]
        queue = self._pairs[message.pair]
        if len(queue) == 1:
            del self._pairs[message.pair]
        else:
            queue.remove(message)

    def _answered(self, message: Message) -> None:
        """Forget that its target has not answered."""
        self._unanswered -= message.tries > 0
        message.tries = 0

    def _is_outdated(self, found: Message) -> bool:
        """Whether a row of a page was ended since that was begun. No row is looked at before the
        handler of an entity in memory runs.
        """
        return found.entity in self._erased or (
            found.key is not None and (found.entity, found.key) in self._ended_keys
        )

    def _look_ahead(self, now: float) -> None:
        """Want a page once a timer that is not in memory is due soon. It may take a while until
        there is room for one, or until the journal answers.
        """
        if self._next_due is not None and not self.reading and self._next_due - self._lead <= now:
            self._next_due = None
            self._more = True

    def _others_first(self, now: float) -> bool:
        """Whether a new one is not taken in directly: there is no room, or it belongs to those that
        wait for it. Frequent timers, or a stream of messages, would keep these out for ever.
        """
        if self._next_due is not None:
            self._look_ahead(now)
        if self._more or self._missed or self._unsure:
            return True
        return not self._has_room()

    def _keeps_others_out(self, message: Message) -> bool:
        """Whether those behind a message take the room that others need: no page is read."""
        if self._has_room() and not (self._more and self._room() < len(self.messages)):
            return False
        return len(self._pairs[_pair(message)]) > 1

    def _has_room(self) -> bool:
        return self._memory.has_room(len(self.messages) + len(self._since), self._bytes)

    def _room(self) -> int:
        return self._memory.room(len(self.messages) + len(self._since), self._bytes)


def _pair(message: Message) -> Pair:
    if message.key is not None:
        return message.id, "", ""
    return "" if message.outside else message.entity, message.target_type, message.target


def _as_time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
