"""The judge of durable messages and timers.

It knows what each command has set in motion from its handler (`senders`), and what came of it from
the journals: the event of a command, the effect of its message and the firing of its timer each
have a token of their own. Entities in memory report what they hear. From that it judges:

* A message is there exactly if the event of its command is: nothing is handled before the event is
  committed, and nothing takes effect without it.
* Each takes effect once (`promises.stored_once`), in memory at least once, and in the order in
  which its sender has set it in motion for that target. It takes effect, or its sender gets it
  back, never both, and only for a reason.
* A timer fires once, not before its time by the server's clock, and not after it was replaced or
  cancelled. A repeating one fires at most once for each of its times.
* When all is calm, nothing is missing.

The journals may go back, and then so does what they show. So nothing is kept here that they could
contradict.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

import msgspec

from sharding_app.adapters.memory.message_rows import Stored
from sharding_app.protocol.delivery.deliveries import Message as Delivered
from sharding_app.runtime.delivery.deliverer import Deliverer, Home
from sharding_app.runtime.hosting.starting import EVERY
from sharding_app.testing.simulation.hosts import shard_at
from sharding_app.testing.simulation.promises import Entry, PromiseBroken

if TYPE_CHECKING:
    from sharding_app.adapters.memory.server import MemoryServer
    from sharding_app.entities.base import Entity
    from sharding_app.testing.simulation.world import World

BEATS = 3
"""A repeating timer ends itself after this number of firings."""
ANSWERED = frozenset({"ask", "steps"})
"""Orders whose sender wants the result."""
FAILING = frozenset({"bounce", "burst"})
"""Orders that always fail: the sender gets them back."""
OUTCOMES = (
    *("pay", "ask", "slowly", "steps", "together", "stumble", "pass", "durably", "later", "reply"),
    *("hesitate", "heard", "fired", "returned", "parked"),
    *("retried", "run now", "discarded", "erased"),
)
"""What becomes of messages and timers: effects, by the order, and other ends."""
MESSAGE = "durable message"
PAID = frozenset({"pay", "ask", "slowly", "steps", "together", "burst", "stumble", "pass", "bounce"})
PAYING = ("sim.Account/", "sim.Courier/")
LONGEST_SECONDS = 1.2
"""Of a timer that fires once, but for `ring_far`."""
AHEAD_SECONDS = 1.2
"""A daily timer is set this much earlier. Virtual clocks drift by 4 %: a node may take the server's
clock to be a second ahead, up to which a reading counts as late, and a time of day as over.
"""
FAR_SECONDS = 5000.0
"""Of `ring_far`: no run lasts as long."""
DAY_SECONDS = 86_400.0
STEP_SECONDS = 1.0
"""In calm a handler needs less from its first commit to the second one."""
ROUNDING_SECONDS = 1e-4
LAST = 1 << 20
"""The place of a reply: behind all that its command sets in motion."""


class Order(NamedTuple):
    """What a command sets in motion: a message to a target, a timer with a key, or its end."""

    what: str
    target: str
    "Of a timer its key."
    token: str

    @property
    def is_timer(self) -> bool:
        return self.what.startswith(("ring", "beat"))


class Message(NamedTuple):
    token: str
    sender: str
    target: str
    what: str
    event: str
    "Token of the event of its command; empty: its sender keeps no events."
    place: int
    "Within its command; of a sender without events its number."


class Alarm(NamedTuple):
    """A timer that is set."""

    token: str
    key: str
    due: float
    every: float = 0.0
    "Seconds; 0: it fires once."
    fired: int = 0


def is_paid(what: str, target: str) -> bool:
    """Whether a cent goes with it."""
    return what in PAID and target.startswith(PAYING)


def seconds_of(token: str) -> float:
    """Return the time after which a timer fires."""
    return 0.2 + crc32(token.encode()) % 1000 / 1000 * (LONGEST_SECONDS - 0.2)


def interval_of(token: str) -> float:
    """Return the time between the firings of a timer. The shortest that there may be is a
    second.
    """
    return 1.0 + seconds_of(token) / 2


def is_replaced_after(token: str) -> int:
    """Return after how many firings a timer with two commits sets another one in its place. More
    than BEATS: it does not.
    """
    return 1 + crc32(b"&" + token.encode()) % (BEATS + 1)


def is_firing_of(timer: str, token: str) -> bool:
    """Whether an event's token is that of a firing, and not of its second commit."""
    return token.startswith(f"{timer}#") and not token.endswith("+")


class MessageChecker:
    def __init__(self, world: World) -> None:
        self._world = world
        self.messages: dict[str, Message] = {}
        self._orders: dict[tuple[str, str], dict[int, Order]] = {}
        "By entity and event: what goes with it, by place."
        self._alarms: dict[str, tuple[str, str]] = {}
        "Entity and event of each timer."
        self._in_steps: dict[str, None] = {}
        "Timers whose handlers commit twice."
        self._stepped: dict[str, float] = {}
        "When the first of these commits was made last."
        self._at: dict[tuple[str, str], float] = {}
        "When the statement began that has stored an event: delays count from there."
        self._dates: dict[str, float] = {}
        "The time that was asked for, of a timer."
        self._tries: Counter[str] = Counter()
        self._heard: dict[str, list[str]] = {}
        "By target in memory: the tokens that it has heard, each once."
        self._numbers: Counter[str] = Counter()
        self._in_doubt: dict[str, None] = {}
        self._inserting: dict[str, tuple[str, str]] = {}
        "Messages that clients store now, with the client and the target."
        self._beside: dict[str, list[str]] = {}
        "For a message from outside: those that its client stored at the same time."
        self._lost_at = -math.inf
        "When the server has lost its last commits."
        "Messages from outside that may be stored late, or not at all."
        self._sure: dict[str, None] = {}
        "Messages without an event that must arrive: their sender was told that they are stored."
        self._run_at: dict[str, float] = {}
        "Timers that an operator has let fire, and when."
        self._discarded: dict[str, float] = {}
        "Messages and timers that an operator has discarded, and when."
        self._erased: dict[str, None] = {}
        "What had come to its end at entities that were erased, or comes to it with their rows."
        self._replies: dict[str, None] = {}
        "Those that a server has, just before it goes back in time."
        self._lost_replies: dict[str, None] = {}
        self._counts_money = True

    # -- From the entities -------------------------------------------------------------------------

    def staged(self, entity: Entity, event: str, place: int, order: Order) -> None:
        """Note what goes with an event. A command that runs again says the same again."""
        name = _name(entity)
        self._orders.setdefault((name, event), {})[place] = order
        if order.is_timer:
            self._alarms[order.token] = name, event
            if order.what == "beat_steps":
                self._in_steps[order.token] = None
        elif order.what != "cancel":
            self._add(Message(order.token, name, order.target, order.what, event, place))

    def time_of(self, token: str, ahead: float = 0.0) -> datetime:
        """Return the date for a timer: the same each time."""
        now = self._world.now
        at = self._dates.setdefault(token, now + ahead + seconds_of(token))
        return self._world.server.date() + timedelta(seconds=at - now)

    def sent_on(self, entity: Entity, token: str, target: str) -> str:
        """Note a message of an entity in memory. Return its token."""
        name = _name(entity)
        self._numbers[name] += 1
        return self._without_event(name, f"{token}.{self._numbers[name]}", target)

    def sets(self, entity: Entity, token: str) -> str:
        """Note a timer that an entity in memory sets for itself. Return its token."""
        name = _name(entity)
        self._numbers[name] += 1
        return self._without_event(name, f"{token}.{self._numbers[name]}", name, "later")

    def sent_from_outside(self, client: str, token: str, target: str, *, is_timer: bool) -> None:
        """Note a message that a client stores."""
        self._numbers[client] += 1
        for other, pair in self._inserting.items():
            if pair == (client, target):
                self._beside.setdefault(token, []).append(other)
                self._beside.setdefault(other, []).append(token)
        self._inserting[token] = client, target
        self._without_event(client, token, target, "later" if is_timer else "durably")

    def is_stored(self, token: str, since: float) -> None:
        """Note that the sender of a message without an event was told of its storage.

        `since`: when it asked. It may be told of a commit that the server has lost meanwhile.
        """
        self._inserting.pop(token, None)
        if since > self._lost_at:
            self._sure[token] = None

    def is_in_doubt(self, token: str) -> None:
        """Note that a message from outside may be stored, and later than the next one."""
        self._inserting.pop(token, None)
        self._in_doubt[token] = None

    def tries(self, token: str) -> int:
        """Count the attempts of a handler."""
        self._tries[token] += 1
        return self._tries[token]

    def handles(self, entity: Entity, token: str) -> None:
        """Check what a handler begins with."""
        try:
            self._handles(_name(entity), token)
        except PromiseBroken as error:
            self._world.broke(error)

    def is_heard(self, entity: Entity, token: str) -> None:
        """Check the order of what an entity in memory hears for the first time."""
        name, message = _name(entity), self.messages.get(token)
        heard = self._heard.setdefault(name, [])
        if message is None or token in heard:
            return
        try:
            self._follows(message, heard)
        except PromiseBroken as error:
            self._world.broke(error)
        heard.append(token)
        self._count("heard")

    # -- From the journal --------------------------------------------------------------------------

    def committed(self, entity: str, new: Sequence[Entry], began: float) -> None:
        """Check events, and states' new tokens, at the moment of their commit."""
        for entry in new:
            self._at[entity, entry.token] = began
            found = self._effect(entity, entry.token)
            if found is not None:
                self._took_effect(found, entry.token)
            elif self._timer_of(entry.token) is not None:
                self._fired(entity, entry)

    def is_losing_its_tail(self, server: MemoryServer) -> None:
        """Keep which replies wait in a server, just before it goes back in time."""
        self._replies = _replies_in(server)

    def tail_is_lost(self, server: MemoryServer) -> None:
        """Note that the server lacks the last commits: what was stored may be gone.

        Of several servers another one still has what went with it.
        """
        still_there = _replies_in(server)
        self._lost_replies |= {each: None for each in self._replies if each not in still_there}
        self._replies = {}
        self._sure.clear()
        self._lost_at = self._world.now
        if self._world.journals:
            self._counts_money = False

    # -- From operators ----------------------------------------------------------------------------

    def order_of(self, entity: str, event: str) -> Order:
        """Return the only order of a command."""
        return self._orders[entity, event][0]

    def rows_of(self, token: str) -> list[Stored]:
        """Return the rows with a token."""
        return [each for each in self._rows() if f"{_first(each.row.args)}" == token]

    def has_ended(self, token: str) -> bool:
        """Whether a message has taken effect, or a timer has fired."""
        entity = self._alarms[token][0] if token in self._alarms else self.messages[token].target
        return any(each.partition("#")[0] == token for each in self._tokens(entity))

    def is_run(self, token: str) -> None:
        """Note that an operator lets a message or a timer go out at once."""
        self._run_at[token] = self._world.now
        self._count("run now" if token in self._alarms else "retried")

    def is_discarded(self, token: str) -> None:
        """Note that an operator has deleted the row of a message or a timer."""
        self._discarded[token] = self._world.now
        self._count("discarded")

    def is_erased(self, type_id: int, entity: str, taken: Iterable[Stored]) -> None:
        """Check an erasure at its commit: the entity's messages and timers, of which it has just
        `taken` the rows, are gone with it.
        """
        name = f"{self._world.witness.name_of(type_id)}/{entity}"
        rows = self._rows()
        left = [each.row.id for each in rows if (each.row.type_id, each.row.entity) == (type_id, entity)]
        if left:
            raise PromiseBroken(15, "erasures_take_messages", f"{left} are left", name)
        self.is_archived(name)
        for token in (f"{_first(each.row.args)}" for each in taken):
            message = self.messages.get(token)
            # The row was the target's own. Its sender is a client, which has no event to lose.
            if message is not None and not message.event and message.target == name:
                self._erased[token] = None
        if name.startswith(PAYING):
            self._counts_money = False  # what it had is erased too
            self._count("erased")

    def is_archived(self, name: str) -> None:
        """Note that the events of an entity have left the journal."""
        for token in self._tokens(name):
            self._erased[token] = None

    # -- At the end --------------------------------------------------------------------------------

    def waiting(self) -> bool:
        """Whether the server has rows, but for those that an operator has to look at, and the
        timers of a singleton's schedule. A row is parked too while its handler is between two
        commits.
        """
        now = self._world.now
        return any(
            now < self._stepped.get(f"{_first(each.row.args)}", -math.inf) + STEP_SECONDS
            if each.parked
            else not (each.row.key or "").startswith(EVERY)
            for each in self._rows()
        )

    def look_back(self) -> None:
        """Check that all that was set in motion has come to its end. Nothing is under way any
        more.
        """
        parked = self._parked()
        if parked:
            self._count("parked")
        for message in list(self.messages.values()):
            if self._is_there(message):
                self._has_ended(message, parked)
        for entity in {entity: None for entity, _ in self._alarms.values()}:
            self._are_whole(entity, parked)
            for alarm in self._set(entity).values():
                if alarm.token in self._in_steps and alarm.token in parked:
                    continue  # its node has died between the two commits
                refused = alarm.token if not alarm.every else f"{alarm.token}#{alarm.fired + 1}"
                if alarm.token not in self._discarded and refused not in self._world.obstacles.refused:
                    raise PromiseBroken(16, "timers_fire", f"{alarm} has not fired", entity)
        self._nothing_is_lost(parked)

    # -- Inside ------------------------------------------------------------------------------------

    def _rows(self) -> Iterator[Stored]:
        """Return the messages and timers of all journals, but for copies that a move has made."""
        world = self._world
        for name, server in world.servers.items():
            for each in server.messages.rows.values():
                type_name = world.witness.name_of(each.row.type_id)
                if each.row.epoch is None or world.where.lies_in(name, type_name, each.row.shard):
                    yield each

    def _add(self, message: Message) -> None:
        self.messages[message.token] = message
        if message.what in ANSWERED:
            reply = Message(f"{message.token}~", message.target, message.sender, "reply", message.token, LAST)
            self.messages[reply.token] = reply

    def _without_event(self, sender: str, token: str, target: str, what: str = "pay") -> str:
        self.messages[token] = Message(token, sender, target, what, "", self._numbers[sender])
        return token

    def _effect(self, entity: str, token: str) -> Message | None:
        """Return the message whose effect, or whose return to its sender, that token is there."""
        message = self.messages.get(token)
        if message is not None and message.target == entity:
            return message
        returned = self.messages.get(token.removesuffix("!")) if token.endswith("!") else None
        return returned if returned is not None and returned.sender == entity else None

    def _tokens(self, entity: str) -> list[str]:
        return [entry.token for entry in self._world.witness.journal.get(entity, ())]

    def _is_there(self, message: Message) -> bool:
        """Whether the message must arrive."""
        if not message.event:
            return message.token in self._sure
        if message.what == "reply" and message.sender in self._heard:
            heard = message.event in self._heard[message.sender]
            return heard and self._is_there(self.messages[message.event])
        return message.event in self._tokens(message.sender)

    def _handles(self, entity: str, token: str) -> None:
        alarm = self._alarms.get(token.partition("#")[0])
        message = self._effect(entity, token)
        if alarm is not None:
            sender, event = alarm
        elif message is not None:
            sender, event = message.sender, message.event
        else:
            raise PromiseBroken(15, "messages_follow_their_commit", f"{token!r} was never sent", entity)
        if event and not self._was_stored(sender, event):
            detail = f"{token!r} is handled, and {event!r} of {sender} is not committed"
            raise PromiseBroken(15, "messages_follow_their_commit", detail, entity)

    def _is_lost_between(self, message: Message, *tokens: str) -> bool:
        """Whether one of these tokens was lost with the tail of one of two journals, and the other
        journal still has what went with it.
        """
        return any(map(self._world.witness.was_lost, tokens)) and self._is_between(message)

    def _is_lost_reply(self, message: Message) -> bool:
        """Whether it was the reply of an entity in memory, which has no event: its row was lost,
        and the other journal may have ended the message that it replies to.
        """
        is_of_memory = message.sender in self._heard
        return is_of_memory and message.token in self._lost_replies and self._is_between(message)

    def _is_between(self, message: Message) -> bool:
        """Whether its sender and its target lie in two journals, or did."""
        if not self._world.journals:
            return False
        if self._server_of(message.sender) is not self._server_of(message.target):
            return True
        return any(map(self._has_moved, (message.sender, message.target)))

    def _has_moved(self, name: str) -> bool:
        type_name, _, entity_id = name.partition("/")
        key = type_name, self._world.shard_of(type_name, entity_id) if entity_id else 0
        return self._world.where.has_moved(key)

    def _server_of(self, name: str) -> object:
        """Return the server of an entity. A client's messages lie in the journal of the cluster."""
        type_name, _, entity_id = name.partition("/")
        return self._world.server_of_entity(type_name, entity_id) if entity_id else self._world.server

    def _was_stored(self, entity: str, token: str) -> bool:
        """Whether an event is stored, or was, on a server that has lost it since."""
        return (
            token in self._tokens(entity)
            or token in self._heard.get(entity, ())
            or self._world.witness.was_lost(token)
        )

    def _took_effect(self, message: Message, token: str) -> None:
        """Check that the event is there, the order, and that it is either done or returned."""
        sender, target = self._tokens(message.sender), self._tokens(message.target)
        if self._is_lost_between(message, message.event):
            return
        if message.event and message.event not in sender and message.sender not in self._heard:
            detail = f"{token!r} took effect, and {message.event!r} of {message.sender} is not stored"
            raise PromiseBroken(15, "messages_follow_their_commit", detail, message.target)
        if token != message.token:
            self._count("returned")
            if message.token in target or not self._may_fail(message):
                raise PromiseBroken(
                    15, "messages_fail_for_a_reason", f"{message} was returned", message.sender
                )
            return
        self._count(message.what)
        if token in self._discarded:
            raise PromiseBroken(15, "discarded_is_not_delivered", f"{message} was discarded", message.target)
        if f"{token}!" in sender or message.what in FAILING:
            raise PromiseBroken(
                15, "messages_fail_for_a_reason", f"{message} took effect, and must fail", message.target
            )
        self._follows(message, [each for each in target if each != token])

    def _may_fail(self, message: Message) -> bool:
        """Whether a message may fail for good: its target says so, or the server refuses its
        row.
        """
        refused = self._world.obstacles.refused
        return message.what in FAILING or message.token in refused or f"{message.token}+" in refused

    def _follows(self, message: Message, before: Iterable[str]) -> None:
        """Check that no later message of the sender has taken effect before it at its target."""
        mine = self._order(message)
        if mine is None:
            return
        for token in before:
            other = self.messages.get(token)
            if other is None or (other.sender, other.target) != (message.sender, message.target):
                continue
            if other.token in self._beside.get(message.token, ()):
                continue
            theirs = self._order(other)
            if theirs is not None and theirs > mine:
                detail = f"{other} took effect before {message}"
                raise PromiseBroken(15, "messages_keep_their_order", detail, message.target)

    def _order(self, message: Message) -> tuple[int, int] | None:
        """Return the place of a message among those of its sender; None: it has none."""
        if not message.event:
            unordered = message.what == "later" or message.token in self._in_doubt
            return None if unordered else (0, message.place)
        tokens = self._tokens(message.sender)
        return (tokens.index(message.event), message.place) if message.event in tokens else None

    def _fired(self, entity: str, entry: Entry) -> None:
        """Check the firing of a timer, whose event is the last one of the entity."""
        self._count("fired")
        timer = entry.token.partition("#")[0]
        if timer in self._in_steps:
            self._stepped[timer] = self._world.now
        self._set(entity)

    def _timer_of(self, token: str) -> str | None:
        """Return the timer of which an event's token is a firing."""
        timer = token.partition("#")[0]
        return timer if timer in self._alarms and not token.endswith("+") else None

    def _are_whole(self, entity: str, parked: dict[str, None]) -> None:
        """Check that each firing with two commits has both, or that its row waits for an operator
        until the entity ends or replaces the timer.
        """
        tokens = self._tokens(entity)
        for place, token in enumerate(tokens):
            timer, second = self._timer_of(token), f"{token}+"
            if timer not in self._in_steps or second in tokens or timer in parked:
                continue
            if second in self._erased or timer in self._discarded:
                continue
            name, event = self._alarms[timer]
            key = next(each.target for each in self._orders[name, event].values() if each.token == timer)
            later = (
                order
                for each in tokens[place + 1 :]
                for order in self._orders.get((entity, each), {}).values()
            )
            if any(order.target == key for order in later):
                continue
            raise PromiseBroken(16, "timers_fire_whole", f"{token!r} is stored without {second!r}", entity)

    def _set(self, entity: str) -> dict[str, Alarm]:
        """Return the timers of an entity that are set, by key, after checking all that have
        fired.
        """
        present: dict[str, Alarm] = {}
        for entry in self._world.witness.journal.get(entity, ()):
            if (timer := self._timer_of(entry.token)) is not None:
                self._fires(entity, entry, timer, present)
            for _, order in sorted(self._orders.get((entity, entry.token), {}).items()):
                if order.what == "cancel":
                    present.pop(order.target, None)
                elif order.is_timer:
                    present[order.target] = self._started(entity, entry.token, order)
        return present

    def _fires(self, entity: str, entry: Entry, token: str, present: dict[str, Alarm]) -> None:
        alarm = next((each for each in present.values() if each.token == token), None)
        if alarm is None or self._is_over(alarm, entry):
            raise PromiseBroken(
                16, "ended_timers_do_not_fire", f"{entry.token!r} fired, and is not set", entity
            )
        if entry.at < alarm.due - ROUNDING_SECONDS:
            raise PromiseBroken(
                16, "timers_fire_in_time", f"{entry.token!r} fired at {entry.at:.4f}: {alarm}", entity
            )
        if alarm.every:
            present[alarm.key] = alarm._replace(due=alarm.due + alarm.every, fired=alarm.fired + 1)
        else:
            del present[alarm.key]

    def _is_over(self, alarm: Alarm, entry: Entry) -> bool:
        """Whether an operator had discarded a timer when it fired."""
        return entry.at >= self._discarded.get(alarm.token, entry.at + 1)

    def _started(self, entity: str, event: str, order: Order) -> Alarm:
        alarm = self._planned(entity, event, order)
        return alarm._replace(due=min(alarm.due, self._run_at.get(order.token, alarm.due)))

    def _planned(self, entity: str, event: str, order: Order) -> Alarm:
        began, token, key = self._at[entity, event], order.token, order.target
        if order.what == "ring_at":
            return Alarm(token, key, self._dates[token])
        if order.what == "ring_far":
            return Alarm(token, key, began + FAR_SECONDS)
        if order.what == "beat_daily":
            return Alarm(token, key, self._dates[token], DAY_SECONDS)
        if order.what == "ring":
            return Alarm(token, key, began + seconds_of(token))
        return Alarm(token, key, began + interval_of(token), interval_of(token))

    def _parked(self) -> dict[str, None]:
        """Return the tokens of the messages and timers that wait for an operator."""
        return {f"{_first(each.row.args)}": None for each in self._rows() if each.parked}

    def _has_ended(self, message: Message, parked: dict[str, None]) -> None:
        token = message.token
        refused = self._world.obstacles.refused
        target = self._tokens(message.target)
        if token in self._discarded or self._is_lost_between(message, token, f"{token}+"):
            return
        if self._is_lost_reply(message):
            return
        effect = token in target or token in self._heard.get(message.target, ()) or token in self._erased
        returned = message.event != "" and f"{token}!" in self._tokens(message.sender)
        is_parked = token in parked and (
            message.what in ("lose", "steps") or self._may_fail(message) or f"{token}!" in refused
        )
        wanted = is_parked if message.what == "lose" else effect or returned or is_parked
        if message.what == "steps" and effect:
            wanted = f"{token}+" in target or f"{token}+" in self._erased or is_parked
        if (
            message.what == "reply"
            and not effect
            and (message.event in parked or self._is_half(message.event))
        ):
            return  # its message has not ended, or was erased before it had
        if not wanted and not (message.what == "reply" and token in refused):
            raise PromiseBroken(15, "messages_arrive", f"{message} has come to no end", message.target)

    def _is_half(self, token: str) -> bool:
        """Whether a message in two commits has only the first one. Its reply goes with the
        second.
        """
        message = self.messages[token]
        second = f"{token}+"
        return (
            message.what == "steps"
            and second not in self._tokens(message.target)
            and second not in self._erased
        )

    def _nothing_is_lost(self, parked: dict[str, None]) -> None:
        """Check that no cent was made or lost: what no account has is on its way to an operator."""
        if not self._counts_money:
            return
        total = 0
        for server in self._world.servers.values():
            for (type_id, entity), events in server.journal.events.items():
                name = self._world.witness.name_of(type_id)
                if f"{name}/{entity}".startswith(PAYING) and self._world.lies_in(server, name, entity):
                    total += sum(_cents(each.row.payload) for each in events.values())
        for token in parked:
            message = self.messages.get(token)
            # What an entity in memory has sent came from no account: it counts once it has arrived.
            if message is None or not message.event or not is_paid(message.what, message.target):
                continue
            total += token not in self._tokens(message.target)
        outside = sum(
            token in self._tokens(each.target)
            for token, each in self.messages.items()
            if not each.event and each.target.startswith(PAYING)
        )
        if total != outside:
            raise PromiseBroken(15, "money_is_kept", f"{total - outside} cents were made", None)

    def _count(self, what: str) -> None:
        self._world.transition(MESSAGE, "stored", what)


@contextmanager
def deliveries_watched(world: World) -> Iterator[None]:
    """Check who delivers, while the block runs: the owner's home, with a valid lease."""
    real = Deliverer._send

    def send(self: Deliverer, home: Home, message: Delivered) -> None:
        node = world.node_of(self._me)
        shard = shard_at(node, home.type.name, home.shard) if node is not None else None
        about = f"{home.type.name}/{home.shard}"
        if node is None or shard is None or shard.epoch != home.epoch or shard.stopping:
            detail = f"{self._me} delivers at epoch {home.epoch}, and does not host it"
            world.broke(PromiseBroken(15, "delivers_at_home", detail, about))
        elif not world.is_valid(node):
            detail = f"{self._me} delivers without a lease"
            world.broke(PromiseBroken(15, "delivers_while_valid", detail, about))
        if home.type.kind == "memory":
            _is_due(world, home, message)
        real(self, home, message)

    setattr(Deliverer, "_send", send)  # noqa: B010  (a method of a class)
    try:
        yield
    finally:
        setattr(Deliverer, "_send", real)  # noqa: B010


def _is_due(world: World, home: Home, message: Delivered) -> None:
    """Check that a timer's time has come: a handler that stores nothing has no other check. Its
    node goes by its estimate of the server's clock.
    """
    server = world.server_of(home.type.name, home.shard)
    stored = server.messages.rows.get(message.id)
    early = 0.0 if stored is None else (stored.due - server.date()).total_seconds()
    if early > AHEAD_SECONDS:
        detail = f"{message.command} of {message.target} is delivered {early:.3f} s before its time"
        world.broke(PromiseBroken(16, "timers_fire_in_time", detail, f"{home.type.name}/{home.shard}"))


def _name(entity: Entity) -> str:
    made = type(entity)._sharding_type
    return "" if made is None else f"{made.name}/{entity.entity_id}"


def _replies_in(server: MemoryServer) -> dict[str, None]:
    """Return the tokens of the replies that wait there."""
    rows = (each.row for each in server.messages.rows.values())
    return {f"{_first(row.args)}~": None for row in rows if row.command == "thanked"}


def _first(args: bytes) -> object:
    """Return the token among the arguments of a message, or of its failure."""
    found = msgspec.msgpack.decode(args)
    if isinstance(found, list) and found and isinstance(found[0], dict):
        return found[0]["arguments"]["token"]
    return found[0] if found else ""


def _cents(payload: bytes) -> int:
    return int(msgspec.json.decode(payload).get("cents", 0))
