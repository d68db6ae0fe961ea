"""Replies to commands: a value, an error, or a hand-back of a command that was not handled.

`runtime.execution.execution` says when which of them goes out.
"""

import logging
from collections import Counter
from collections.abc import Callable

import msgspec

from sharding_app.entities.entity_type import EntityType
from sharding_app.errors import (
    AskTimeout,
    EntityFailed,
    NotSerializable,
    PartiallyApplied,
    Rejected,
    ShardingError,
    SubjectErased,
    Unavailable,
    to_wire,
)
from sharding_app.protocol.delivery.outcome import encode
from sharding_app.protocol.ids import Incarnation
from sharding_app.protocol.messages import Answer, Deliver, Failed, HandBack
from sharding_app.protocol.shard import Slot
from sharding_app.redaction import told
from sharding_app.runtime.base.interfaces import NO_CALLER
from sharding_app.runtime.execution.foreign import ForeignMessages
from sharding_app.runtime.execution.owner import Owner
from sharding_app.runtime.journal.commits import NotCommitted
from sharding_app.runtime.telemetry.meter import Meter

logger = logging.getLogger("sharding.entity")


class Replies:
    def __init__(
        self,
        entity_type: EntityType,
        owner: Owner,
        meter: Meter,
        counters: Counter[str],
        did_well: Callable[[str], None],
    ) -> None:
        """`did_well` is called with an entity whose own command (a timer's, say) has succeeded."""
        self._did_well = did_well
        self._type = entity_type
        self._owner = owner
        self._meter = meter
        self._counters = counters
        self.foreign: ForeignMessages | None = None
        "Set where there are several journals."

    # -- Replies -----------------------------------------------------------------------------------

    def answer(self, source: Incarnation, message: Deliver, value: bytes) -> None:
        if message is self._meter.watched:
            self._meter.done()
        if message.deadline_ms:
            self._owner.send(source, Answer(message.request, value))
        elif source == NO_CALLER:
            self._did_well(message.entity)
        else:
            self._owner.done(source, message.request)

    def fail(self, source: Incarnation, message: Deliver, error: ShardingError) -> None:
        if (
            message.delivery is not None
            and self.foreign is not None
            and self.foreign.must_look(message, error)
        ):
            self._owner.spawn(self._fail_unless_taken(self.foreign, source, message, error))
        else:
            self._fail(source, message, error)

    async def _fail_unless_taken(
        self, foreign: ForeignMessages, source: Incarnation, message: Deliver, error: ShardingError
    ) -> None:
        """Fail a message whose row lies in another journal, or answer that it has taken effect."""
        try:
            judged = await foreign.judged(message, error)
        except Exception:
            self._fail(source, message, Unavailable("its outcome could not be read", code="fate_unknown"))
            raise
        if isinstance(judged, ShardingError):
            self._fail(source, message, judged)
        else:
            self._counters["deliveries_repeated"] += 1
            self.answer(source, message, encode(judged))

    def _fail(self, source: Incarnation, message: Deliver, error: ShardingError) -> None:
        self._counters["rejected" if isinstance(error, Rejected) else "failed"] += 1
        if message is self._meter.watched:
            self._meter.done()
        if source == NO_CALLER:
            logger.warning(
                "%s.%s, which a timer called, failed: %s", self._type.name, message.command, told(error),
                extra={"action": "timer_failed", "entity_type": self._type.name},
            )  # fmt: skip
            return
        kind, text, params = to_wire(error)
        packed = msgspec.msgpack.encode(params) if params else b""
        self._owner.send(source, Failed(message.request, kind, text, packed))

    def refuse(self, source: Incarnation, message: Deliver, error: ShardingError) -> None:
        """Fail a command that does not begin here.

        If it had reached a home that died, it may have taken effect there. No look-up was made, so
        the error must not say that nothing is stored.
        """
        if message.attempt > 1 and error.stored == "nothing" and error.code != "overtaken":
            text = f"{error.message}; it was under way when an earlier home died, and its fate is unknown"
            error = Unavailable(text, code="fate_unknown")
        self.fail(source, message, error)

    def expired(self, source: Incarnation, message: Deliver) -> None:
        """Fail a command whose caller has given up.

        It does not run, so that an overlong queue shrinks.
        """
        self._counters["expired"] += 1
        what = f"{self._type.name} {message.entity!r}: the time of {message.command} was over before its turn came"
        self.fail(source, message, AskTimeout(what, code="expired"))

    def hand_back(self, source: Incarnation, message: Deliver) -> None:
        if source != NO_CALLER:
            self._owner.send(source, HandBack(message.type, message.shard, message.epoch, [message.request]))

    # -- Errors ------------------------------------------------------------------

    def overtaken(self, message: Deliver) -> ShardingError:
        what = (
            f"{self._type.name} {message.entity!r}: {message.command} was not taken before its home died, and a later"
            " command of the same process was: it is not run behind that one. Nothing of it is stored"
        )
        return Unavailable(what, code="overtaken")

    def lost_while_running(self, slot: Slot, message: Deliver) -> ShardingError:
        """Return the error for a command of an in-memory entity whose shard was lost."""
        what = f"{self._type.name} {slot.id!r}: its shard was lost while {message.command} ran, and its fate is unknown"
        return Unavailable(what, code="fate_unknown")

    def stopped_by_force(
        self, slot: Slot, message: Deliver, *, partly: bool, in_doubt: bool
    ) -> ShardingError:
        """Return the error for a command that still runs but is no longer waited for.

        It can begin no further commit.
        """
        what = f"{self._type.name} {slot.id!r}: {message.command} was stopped by force, its shard had to move"
        if partly:
            return PartiallyApplied(f"{what}; what it had awaited stays")
        if in_doubt:
            what = f"{what} while a commit of it was under way: its fate is unknown"
            return Unavailable(what, code="fate_unknown")
        return Unavailable(what, code="stopped_by_force")

    def not_committed(
        self, slot: Slot, message: Deliver, why: NotCommitted, detail: str = "", *, partly: bool = False
    ) -> ShardingError:
        """Return the error for a command whose commit has failed, and count it."""
        what = f"{self._type.name} {slot.id!r}: {message.command}"
        self._counters[f"not_committed_{why.value}"] += 1
        self._meter.trouble(slot.id, message.command, f"not_committed: {why.value}")
        if partly:
            return PartiallyApplied(
                f"{what} had committed a part; the rest was {why.value} {detail}".rstrip()
            )
        if why is NotCommitted.PARTLY:
            return PartiallyApplied(f"{what} had committed a part when it was delivered before")
        if why is NotCommitted.REFUSED:
            return NotSerializable(f"{what}: Postgres refused its events: {detail}")
        if why is NotCommitted.ERASED:
            return SubjectErased(f"{what}: {detail}")
        if why is NotCommitted.SUPERSEDED:
            return Unavailable(
                f"{what}: an earlier commit of this entity failed; nothing of this one is stored"
            )
        if why is NotCommitted.UNAVAILABLE:
            return Unavailable(f"{what}: nothing of it is stored: {detail}")
        return EntityFailed(f"{what}: its shard moved before it was stored")
