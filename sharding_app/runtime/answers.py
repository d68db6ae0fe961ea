"""What those who asked are told of their commands: a value, an error, or that the command comes back unhandled.

Contract: what is said of a state goes out when all commits are through that made it; if one fails, it is not said. A
command of which nothing is stored, and whose entity has moved, is handed back; one of which a part is stored has failed.
"""

import logging
from collections import Counter
from collections.abc import Callable
from typing import cast

import msgspec

from sharding_app.core.ids import Incarnation
from sharding_app.core.messages import Answer, Deliver, Failed, HandBack
from sharding_app.core.shard import Slot
from sharding_app.errors import (
    AskTimeout,
    EntityFailed,
    NotStorable,
    PartlyApplied,
    Rejected,
    ShardingError,
    Unavailable,
    to_wire,
)
from sharding_app.model.types import EntityType
from sharding_app.quoting import told
from sharding_app.runtime.commits import CommandCommit
from sharding_app.runtime.journal_writer import NotCommitted
from sharding_app.runtime.meter import Meter
from sharding_app.runtime.owner import NOBODY, Owner
from sharding_app.runtime.waiting import is_gone

logger = logging.getLogger("sharding.entity")


class Answers:
    def __init__(
        self,
        entity_type: EntityType,
        owner: Owner,
        meter: Meter,
        counters: Counter[str],
        did_well: Callable[[str], None],
    ) -> None:
        """`did_well`: told of an entity whose own work, a timer's command say, has succeeded."""
        self._did_well = did_well
        self._type = entity_type
        self._owner = owner
        self._meter = meter
        self._counters = counters

    # -- At once ---------------------------------------------------------------------------------------------------

    def answer(self, source: Incarnation, message: Deliver, value: bytes) -> None:
        if message is self._meter.watched:
            self._meter.done()
        if message.deadline_ms:
            self._owner.send(source, Answer(message.request, value))
        elif source == NOBODY:
            self._did_well(message.entity)
        else:
            self._owner.done(source, message.request)

    def fail(self, source: Incarnation, message: Deliver, error: ShardingError) -> None:
        self._counters["rejected" if isinstance(error, Rejected) else "failed"] += 1
        if message is self._meter.watched:
            self._meter.done()
        if source == NOBODY:
            logger.warning(
                "%s.%s, which a timer called, failed: %s", self._type.name, message.command, told(error),
                extra={"action": "timer_failed", "entity_type": self._type.name},
            )  # fmt: skip
            return
        kind, text, params = to_wire(error)
        packed = msgspec.msgpack.encode(params) if params else b""
        self._owner.send(source, Failed(message.request, kind, text, packed))

    def refuse(self, source: Incarnation, message: Deliver, error: ShardingError) -> None:
        """Fail a command that does not begin here. One that had reached a home which died may have taken effect there, and
        nothing has looked: that it does not begin now says nothing of it."""
        if message.attempt > 1 and error.stored == "nothing":
            text = f"{error.message}; it was under way when an earlier home died, and its fate is unknown"
            error = Unavailable(text, code="fate_unknown")
        self.fail(source, message, error)

    def expired(self, source: Incarnation, message: Deliver) -> None:
        """Its caller has given up meanwhile: it is not worked on, so that a queue which is too long becomes shorter."""
        self._counters["expired"] += 1
        what = f"{self._type.name} {message.entity!r}: the time of {message.command} was over before its turn came"
        self.fail(source, message, AskTimeout(what, code="expired"))

    def hand_back(self, source: Incarnation, message: Deliver) -> None:
        if source != NOBODY:
            self._owner.send(source, HandBack(message.type, message.shard, message.epoch, [message.request]))

    # -- When what was seen is committed ---------------------------------------------------------------------------

    def answer_seen(self, slot: Slot, source: Incarnation, message: Deliver, value: bytes) -> None:
        """Answer what persisted nothing: at once, or when what it has seen is committed."""
        if slot.tail is None:
            self.answer(source, message, value)
        else:
            self._after_tail(slot, source, message, lambda: self.answer(source, message, value))

    def fail_seen(self, slot: Slot, source: Incarnation, message: Deliver, error: ShardingError) -> None:
        """Fail a command whose handler has raised: what it has seen may have led to that."""
        self._after_tail(slot, source, message, lambda: self.fail(source, message, error))

    def _after_tail(
        self, slot: Slot, source: Incarnation, message: Deliver, send: Callable[[], None]
    ) -> None:
        """Say something when the commits are through whose state it is about; if they fail, it is not true."""
        tail = slot.tail
        if tail is None:
            send()
            return

        def follow(why: NotCommitted | None) -> None:
            if why is None:
                send()
            elif why is NotCommitted.FENCED or is_gone(slot):
                self.hand_back(source, message)
            else:
                self.fail(source, message, self.refusal(slot, message, NotCommitted.SUPERSEDED, ""))

        cast(CommandCommit, tail).follow(follow)

    # -- When nothing comes of it ----------------------------------------------------------------------------------

    def abandoned(
        self, slot: Slot, source: Incarnation, message: Deliver, *, partly: bool, ran: bool = False
    ) -> None:
        """The object was thrown away while its command waited for something: nothing (more) of it is stored.

        `ran`: its handler has begun. Of an entity that stores nothing such a command goes to no other home by itself.
        """
        if ran and is_gone(slot) and not self._may_run_again(message):
            what = f"{self._type.name} {slot.id!r}: its shard was lost while {message.command} ran, and its fate is unknown"
            self.fail(source, message, Unavailable(what, code="fate_unknown"))
        elif partly or not is_gone(slot):
            self.fail(
                source, message, self.refusal(slot, message, NotCommitted.SUPERSEDED, "", partly=partly)
            )
        else:
            self.hand_back(source, message)

    def _may_run_again(self, message: Deliver) -> bool:
        """As its asker would say after the death of this node (`runtime.process`)."""
        handler = self._type.commands.get(message.command)
        is_query = handler is not None and handler.is_query
        return self._type.kind != "memory" or is_query or bool(message.command_id)

    def given_up(
        self, slot: Slot, source: Incarnation, message: Deliver, *, partly: bool, in_doubt: bool
    ) -> None:
        """Its command still runs, and is not waited for any longer. It can begin no commit any more."""
        what = f"{self._type.name} {slot.id!r}: {message.command} was stopped by force, its shard had to move"
        if partly:
            self.fail(source, message, PartlyApplied(f"{what}; what it had awaited stays"))
        elif in_doubt:
            what = f"{what} while a commit of it was under way: its fate is unknown"
            self.fail(source, message, Unavailable(what, code="fate_unknown"))
        else:
            self.fail(source, message, Unavailable(what, code="stopped_by_force"))

    def refusal(
        self, slot: Slot, message: Deliver, why: NotCommitted, detail: str, *, partly: bool = False
    ) -> ShardingError:
        """The error for a command whose commit has failed, counted."""
        what = f"{self._type.name} {slot.id!r}: {message.command}"
        self._counters[f"not_committed_{why.value}"] += 1
        self._meter.trouble(slot.id, message.command, f"not_committed: {why.value}")
        if partly:
            return PartlyApplied(f"{what} had committed a part; the rest was {why.value} {detail}".rstrip())
        if why is NotCommitted.REFUSED:
            return NotStorable(f"{what}: Postgres refused its events: {detail}")
        if why is NotCommitted.SUPERSEDED:
            return Unavailable(
                f"{what}: an earlier commit of this entity failed; nothing of this one is stored"
            )
        if why is NotCommitted.UNAVAILABLE:
            return Unavailable(f"{what}: nothing of it is stored: {detail}")
        return EntityFailed(f"{what}: its shard moved before it was stored")
