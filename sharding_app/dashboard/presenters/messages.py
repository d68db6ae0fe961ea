"""Messages and timers in words: what is to happen, when, and why it has not happened yet."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

import msgspec
from django.utils.translation import gettext as _

from sharding_app.dashboard import words
from sharding_app.dashboard.presenters.homes import View
from sharding_app.models import Message
from sharding_app.operations.cache import Look
from sharding_app.operations.snapshot import MOST_COUNTED, OVERDUE_SECONDS
from sharding_app.protocol.delivery.recurrence import Recurrence, decode


def message_rows(look: Look, messages: Iterable[Message], *, payloads: bool) -> list[View]:
    """Return rows of a table. The text of an error may hold contents, its code does not."""
    names = {each.number: each.config.name for each in look.cluster.types}
    numbers = {name: number for number, name in names.items()}
    return [_row(each, names, numbers, look.cluster.now, payloads=payloads) for each in messages]


def _row(
    message: Message,
    names: Mapping[int, str],
    numbers: Mapping[str, int],
    now: datetime,
    *,
    payloads: bool,
) -> View:
    state, tone = _state(message, now)
    return {
        "id": message.id,
        "type": names.get(message.type_id, str(message.type_id)),
        "number": message.type_id,
        "entity": message.entity,
        "target_type": message.target_type,
        "target_number": numbers.get(message.target_type),
        "target": message.target,
        "to_itself": names.get(message.type_id) == message.target_type and message.entity == message.target,
        "command": message.command,
        "key": message.key,
        "repeats": repeats(message.every),
        "due": message.due,
        "when": _when(message.due, now),
        "state": state,
        "tone": tone,
        "parked": message.parked,
        "failures": message.failures,
        "error": message.error if payloads else message.error.partition(":")[0],
        "outside": message.epoch is None,
        "reply_to": message.reply_to,
        "on_failure": message.on_failure,
        "at": message.at,
    }


def _state(message: Message, now: datetime) -> tuple[str, str]:
    if message.parked:
        return _("parked"), "bad"
    if message.error:
        return _("failing"), "busy"
    if now - message.due > timedelta(seconds=OVERDUE_SECONDS):
        return _("overdue"), "bad"
    return _("pending"), "good"


def _when(due: datetime, now: datetime) -> str:
    if due > now:
        return _("in {}").format(words.span(due - now))
    return _("{} ago").format(words.span(now - due))


def repeats(every: str | None) -> str:
    """Return how a timer repeats; empty: it does not."""
    if every is None:
        return ""
    try:
        spec = decode(every)
    except msgspec.MsgspecError:
        spec = Recurrence()
    if spec.seconds:
        return _("every {}").format(words.span(timedelta(seconds=spec.seconds)))
    return _("daily at {time} {zone}").format(time=spec.day_at, zone=spec.tz)


def counts(look: Look) -> list[View]:
    """Return a row for each type that has ever stored a message or timer."""
    numbers = {each.config.name: each.number for each in look.cluster.types}
    return [
        {
            "name": each.type,
            "number": numbers.get(each.type),
            "overdue": some(each.overdue),
            "failing": some(each.failing),
            "parked": some(each.parked),
            "oldest": words.span(timedelta(seconds=each.oldest_seconds)) if each.overdue else words.NOTHING,
            "bad": bool(each.overdue or each.parked),
        }
        for each in look.cluster.message_counts
    ]


def some(number: int) -> str:
    """Return a count that was not continued behind a limit."""
    return f"{words.count(number)}+" if number >= MOST_COUNTED else words.count(number)
