"""Projections in words: how far each has come, and which entities wait in it."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from django.utils.translation import gettext as _

from sharding_app.adapters.django.projections import HeldEntity
from sharding_app.dashboard import words
from sharding_app.dashboard.presenters.homes import View
from sharding_app.operations.each_journal import journal_name
from sharding_app.operations.projection_rates import Key, key_of, whole
from sharding_app.operations.projections import LATE_SECONDS, ProjectionLook

UNKNOWN = "?"
"""The journal cannot be reached from here."""


def projection_row(each: ProjectionLook, rates: Mapping[Key, float | None]) -> View:
    """Return the row of one version."""
    late = each.behind_seconds > LATE_SECONDS and not each.filling and not each.status.paused
    return {
        "name": each.name,
        "version": each.version,
        "state": each.state,
        "tone": _tone(each, late=late),
        "live": each.status.live,
        "paused": each.status.paused,
        "declared": each.declared,
        "behind": _behind(each.behind_events, more=each.behind_more),
        "age": _age(each.behind_seconds),
        "late": late,
        "events": words.count(each.events),
        "rate": words.rate(rates.get(whole(each))),
        "failing": words.count(each.waiting - each.parked),
        "parked": words.count(each.parked),
        "bad": bool(late or each.parked or not each.status.is_of_this_server),
        "problems": each.problems,
    }


def part_rows(each: ProjectionLook, rates: Mapping[Key, float | None], now: datetime) -> list[View]:
    """Return a row for each part."""
    return [
        {
            "slices": f"{part.first_slice}-{part.last_slice}",
            "journal": part.journal,
            "events": words.count(part.events),
            "rate": words.rate(rates.get(key_of(each, part))),
            "behind": UNKNOWN if part.trouble else _behind(part.behind_events, more=part.behind_more),
            "age": UNKNOWN if part.trouble else _age(part.behind_seconds),
            "filling": part.is_filling,
            "failing": words.count(part.waiting - part.parked),
            "parked": words.count(part.parked),
            "moved": words.age(part.at, now),
        }
        for part in each.status.parts
    ]


def held_rows(
    held: Iterable[HeldEntity], numbers: Mapping[str, int], now: datetime, *, payloads: bool
) -> list[View]:
    """Return rows of entities that wait. The text of an error may hold contents, its class does
    not.
    """
    return [
        {
            "type": each.type_name,
            "type_number": numbers.get(each.type_name),
            "entity": each.entity,
            "journal": journal_name(each.journal),
            "number": each.number,
            "failures": each.failures,
            "parked": each.parked,
            "state": _("parked") if each.parked else _("failing"),
            "tone": "bad" if each.parked else "busy",
            "error": each.error if payloads else each.error.partition(":")[0],
            "since": words.age(each.at, now),
            "retry": words.NOTHING if each.parked else _in(each.retry_at - now),
        }
        for each in held
    ]


def _tone(each: ProjectionLook, *, late: bool) -> str:
    if late or not each.status.is_of_this_server:
        return "bad"
    if each.status.paused or not each.declared:
        return "warn"
    return "busy" if each.filling else "good"


def _behind(events: int, *, more: bool) -> str:
    return f"{words.count(events)}+" if more else words.count(events)


def _age(seconds: float) -> str:
    return words.span(timedelta(seconds=seconds)) if seconds else words.NOTHING


def _in(left: timedelta) -> str:
    return _("in {}").format(words.span(left))
