"""The page about the cluster's database, and its further journals: tables, who waits for whom, what
was written lately, long histories. It names journals that do not answer, and shows the others.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from django.utils.translation import gettext as _

from sharding_app.adapters.django.database import ReadTooLong
from sharding_app.dashboard import words
from sharding_app.dashboard.pages.messages import without
from sharding_app.dashboard.pages.page import Asked, Page, page
from sharding_app.dashboard.presenters.homes import View
from sharding_app.operations.cache import Look
from sharding_app.operations.database_health import (
    MOST_HISTORIES,
    WRAPAROUND,
    Health,
    LockWait,
    TableHealth,
    TypeWrites,
    read_health,
    read_lock_waits,
    read_longest_histories,
    read_recent_writes,
)
from sharding_app.operations.each_journal import ask, copies_among, journal_name
from sharding_app.operations.journals import read_journals, why_unusable

LATELY_MINUTES = (60, 5)
"""If the server does not finish a count of the longer time, the shorter one is counted."""


def database_page(look: Look, asked: Asked) -> Page:
    """Only the waits are live: the rest changes slowly."""
    names = look.cluster.journal_names
    context: dict[str, Any] = {}
    if asked.live:
        waits = ask(names, read_lock_waits)
        context["waits"] = _waits(waits.found)
        context["note"] = without(waits.down)
    else:
        healths = ask(names, read_health)
        context = {
            "waits": _waits({name: each.waits for name, each in healths.found.items()}),
            "databases": [_database(name, each, names) for name, each in healths.found.items()],
            "wraparound": words.count(WRAPAROUND),
            "note": without(healths.down),
            "journals": _journals(look) if len(names) > 1 else [],
            **_recent(look),
            "histories": _histories(look),
        }
    return page(look, asked, "database", _("Database"), ("lock_waits",), context)


def _database(name: str, health: Health, names: Sequence[str]) -> View:
    return {
        "name": journal_name(name) if len(names) > 1 else "",
        "tables": [_table(each) for each in health.tables],
        "age": words.count(health.age),
        "age_share": words.percent(health.age / WRAPAROUND),
    }


def _journals(look: Look) -> list[View]:
    """Return a row for each of several journals."""
    return [
        {
            "name": each.alias,
            "weight": words.NOTHING if each.weight is None else f"{each.weight:g}",
            "shards": words.count(each.shards),
            "copies": words.count(each.left + each.coming),
            "place": each.place or each.known_place or words.NOTHING,
            "events": words.NOTHING if each.trouble else words.count(each.events),
            "messages": words.NOTHING if each.trouble else words.count(each.messages),
            "size": words.NOTHING if each.trouble else words.size(each.bytes),
            "trouble": each.trouble or why_unusable(each, look.cluster.cluster_id),
        }
        for each in read_journals()
    ]


def _recent(look: Look) -> View:
    numbers = _numbers(look)
    names = look.cluster.journal_names
    copies = copies_among(names)
    for minutes in LATELY_MINUTES:
        try:
            asked = ask(names, partial(read_recent_writes, minutes * 60, copies=copies))
        except ReadTooLong:
            continue
        found = _summed([each for some in asked.found.values() for each in some])
        writes = [
            {
                "type": each.type,
                "number": numbers.get(each.type),
                "events": words.count(each.events),
                "rate": words.rate(each.events / (minutes * 60)),
                "entities": words.count(each.entities),
            }
            for each in found
        ]
        return {"minutes": minutes, "writes": writes}
    return {"minutes": 0, "writes": []}


def _summed(writes: Sequence[TypeWrites]) -> list[TypeWrites]:
    """Make one row of each type: an entity's events are in one journal."""
    found: dict[str, TypeWrites] = {}
    for each in writes:
        one = found.get(each.type, TypeWrites(each.type, 0, 0))
        found[each.type] = TypeWrites(each.type, one.events + each.events, one.entities + each.entities)
    return sorted(found.values(), key=lambda each: -each.events)


def _histories(look: Look) -> list[View] | None:
    """Return the longest of a sample; None: the server did not finish it."""
    numbers = _numbers(look)
    names = look.cluster.journal_names
    copies = copies_among(names)
    try:
        asked = ask(names, partial(read_longest_histories, copies=copies))
    except ReadTooLong:
        return None
    found = [each for some in asked.found.values() for each in some]
    if len(asked.found) > 1:
        found = sorted(found, key=lambda each: -each.recovered)[:MOST_HISTORIES]
    return [
        {
            "type": each.type,
            "number": numbers.get(each.type),
            "entity": each.entity,
            "events": words.count(each.events),
            "recovered": words.count(each.recovered),
        }
        for each in found
    ]


def _numbers(look: Look) -> dict[str, int]:
    return {each.config.name: each.number for each in look.cluster.types}


def _table(each: TableHealth) -> View:
    rows = each.live_rows + each.dead_rows
    return {
        "name": each.name,
        "partitions": each.partitions,
        "table": words.size(each.table_bytes),
        "indexes": words.size(each.index_bytes),
        "rows": words.count(each.live_rows),
        "dead": words.count(each.dead_rows),
        "share": words.percent(each.dead_rows / rows if rows else None),
        "vacuumed": words.NOTHING
        if each.vacuumed_seconds is None
        else _("{} ago").format(words.span(timedelta(seconds=each.vacuumed_seconds))),
        "age": words.count(each.age),
    }


def _waits(found: Mapping[str, Sequence[LockWait]]) -> list[View]:
    """Return the waits of all databases. Sessions of a further journal are named with it."""
    return [_wait(each, name) for name, waits in found.items() for each in waits]


def _wait(each: LockWait, journal: str) -> View:
    who = _session(each.application, each.user, each.pid)
    return {
        "who": f"{journal}: {who}" if journal else who,
        "seconds": words.duration(round(each.seconds, 1)),
        "tables": each.tables or words.NOTHING,
        "holder": _session(each.holder, each.holder_user, each.holder_pid),
        "state": each.holder_state or words.NOTHING,
        "since": words.duration(None if each.holder_seconds is None else round(each.holder_seconds, 1)),
    }


def _session(application: str, user: str, pid: int | None) -> str:
    return _("{application}, role {user}, process {pid}").format(
        application=application or _("a session"), user=user or words.NOTHING, pid=pid or words.NOTHING
    )
