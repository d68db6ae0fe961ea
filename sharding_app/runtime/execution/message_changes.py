"""Rows of messages and timers that go with a command's commit; functions that follow it."""

import asyncio
import inspect
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from sharding_app.entities.entity_type import EntityType
from sharding_app.entities.registry import registry
from sharding_app.entities.staging import StagedMessage, Staging
from sharding_app.errors import InvalidCall
from sharding_app.ports.deliveries import MessageChanges, MessageRow, Taking, TimerKey
from sharding_app.ports.journal import fast_maker
from sharding_app.protocol.delivery.recurrence import decode, first
from sharding_app.protocol.messages import Deliver, Delivery
from sharding_app.redaction import traceable
from sharding_app.runtime.base.interfaces import RAISED, ends_job
from sharding_app.runtime.base.threads import sendable
from sharding_app.runtime.execution.owner import Owner
from sharding_app.runtime.journal.commits import Resident

logger = logging.getLogger("sharding.entity")
_made = fast_maker(MessageRow)
_taken = fast_maker(Taking)
_changes = fast_maker(MessageChanges)
MICROSECONDS = 1_000_000


def changes_messages(message: Deliver, staging: Staging) -> bool:
    """Tell whether rows of messages or timers go with a command's commit."""
    return bool(message.delivery is not None or staging.messages or staging.cancelled)


def ends_own_timer(message: Deliver, staging: Staging) -> bool:
    """Tell whether a timer's handler cancels this timer, or sets it anew."""
    key = None if message.delivery is None else message.delivery.key
    return key is not None and (key in staging.cancelled or any(each.key == key for each in staging.messages))


def needs_time(staging: Staging) -> bool:
    """Tell whether the server's time is needed before the commit: for the first time of a timer
    that repeats daily.
    """
    for each in staging.messages:  # noqa: SIM110  (a generator takes twice as long)
        if each.every is not None and not decode(each.every).seconds:
            return True
    return False


def reply_args(wanted: Delivery, result: object) -> bytes | None:
    """Encode the result for the command that the sender wants it as; None: it wants none."""
    if wanted.reply_to is None:
        return None
    type_name, _, command = wanted.reply_to
    sender = registry.all().get(type_name)
    if sender is None:
        raise InvalidCall(f"no entity type {type_name!r} is known here: it cannot be sent a reply")
    return sender.handler(command).encode_answer(result)


def message_changes(
    owner: Owner,
    type_id: int,
    slot: Resident,
    message: Deliver,
    staging: Staging,
    reply: bytes | None = None,
    *,
    place: tuple[int, int] | None = None,
    park: bool = False,
    resumed: bool = False,
    foreign: str | None = None,
    is_over: bool = False,
) -> MessageChanges:
    """Return the rows for a commit whose last event has the entity's present number.

    `place`: `seq` and the first `position` of its messages, if `seq` is not that number. `park`:
    the commit is in the middle of a handler. `resumed`: it follows such a commit. `foreign`: the
    journal in which the row of its message lies, if that is another one. `is_over`: such a commit
    has cancelled or set anew the timer that the command comes from.
    """
    seq, begin = place or (slot.seq, 0)
    made: list[MessageRow] = []
    cancels: Sequence[TimerKey] = ()
    takes: Sequence[Taking] = ()
    # A comprehension is a call of its own, and most commands need none or one of these.
    for position, each in enumerate(staging.messages, begin):
        made.append(_row(owner, type_id, slot, seq, position, each))
    if staging.cancelled:
        cancels = [(type_id, slot.id, key) for key in staging.cancelled]
    if message.delivery is not None:
        delivery, free = message.delivery, not is_over
        takes = (_taking(type_id, slot, delivery, foreign, park=park, resumed=resumed, keeps_key=free),)
        if reply is not None:
            made.append(reply_row(owner, type_id, slot, message.delivery, reply, seq, begin + len(made)))
    return _changes((made, cancels, takes))


def _row(
    owner: Owner, type_id: int, slot: Resident, seq: int, position: int, staged: StagedMessage
) -> MessageRow:
    shard, due, delay = slot.shard, staged.at, staged.delay
    if staged.every is not None and due is None:
        spec = decode(staged.every)
        delay = spec.seconds
        due = None if delay else first(spec, owner.server_time())
    return _made((
        owner.new_message_id(), type_id, shard.number, slot.id, shard.epoch, seq, position, staged.target_type,
        staged.target, staged.command, staged.args, due, delay, staged.key, staged.every, staged.reply_to,
        staged.on_failure,
    ))  # fmt: skip


def _taking(
    type_id: int,
    slot: Resident,
    takes: Delivery,
    foreign: str | None,
    *,
    park: bool,
    resumed: bool,
    keeps_key: bool,
) -> Taking:
    timer = (type_id, slot.id, takes.key) if keeps_key and takes.key is not None else None
    again = None
    if takes.again is not None and keeps_key and not park:  # a row that is parked keeps its id
        again = takes.again[0], datetime.fromtimestamp(takes.again[1] / MICROSECONDS, UTC)
    shard = slot.shard
    taker = None if foreign is None else (type_id, shard.number, shard.epoch, slot.id)
    return _taken((takes.id, timer, park, resumed, again, None, foreign, taker))


def reply_row(
    owner: Owner, type_id: int, slot: Resident, takes: Delivery, args: bytes, seq: int, position: int
) -> MessageRow:
    """Return the reply to a message: a message of its target."""
    shard = slot.shard
    assert takes.reply_to is not None  # noqa: S101
    type_name, entity, command = takes.reply_to
    return MessageRow(
        owner.new_message_id(), type_id, shard.number, slot.id, shard.epoch, seq, position, type_name, entity,
        command, args,
    )  # fmt: skip


async def run_after_commit(
    owner: Owner,
    entity_type: EntityType,
    command: str,
    functions: Sequence[Callable[[], object]],
    counters: Counter[str],
) -> None:
    """Run functions after a commit, one after the other. An error costs only its function."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    threads = owner.threads
    for function in functions:
        try:
            if inspect.iscoroutinefunction(function):
                result = function()
            else:
                result = await loop.run_in_executor(threads.executor(0), threads.run, sendable(function))
            if inspect.isawaitable(result):
                with threads.around(0):
                    await result
        except RAISED as error:
            if ends_job(error, task, cancelled=owner.closing):
                raise
            counters["after_commit_failed"] += 1
            logger.error(
                "what %s.%s does after its commit raised %s", entity_type.name, command, type(error).__qualname__,
                exc_info=traceable(error), extra={"action": "after_commit_failed", "entity_type": entity_type.name},
            )  # fmt: skip
