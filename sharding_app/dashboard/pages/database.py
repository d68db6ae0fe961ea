"""The page about the cluster's database: tables, who waits for whom, what was written lately, long
histories.
"""

from datetime import timedelta
from typing import Any

from django.utils.translation import gettext as _

from sharding_app.adapters.django.database import ReadTooLong
from sharding_app.dashboard import words
from sharding_app.dashboard.pages.page import Asked, Page, page
from sharding_app.dashboard.presenters.homes import View
from sharding_app.operations.cache import Look
from sharding_app.operations.database_health import (
    WRAPAROUND,
    LockWait,
    TableHealth,
    read_health,
    read_lock_waits,
    read_longest_histories,
    read_recent_writes,
)

LATELY_MINUTES = (60, 5)
"""If the server does not finish a count of the longer time, the shorter one is counted."""


def database_page(look: Look, asked: Asked) -> Page:
    """Only the waits are live: the rest changes slowly."""
    context: dict[str, Any] = {}
    if asked.live:
        context["waits"] = [_wait(each) for each in read_lock_waits()]
    else:
        health = read_health()
        context = {
            "waits": [_wait(each) for each in health.waits],
            "tables": [_table(each) for each in health.tables],
            "age": words.count(health.age),
            "age_share": words.percent(health.age / WRAPAROUND),
            "wraparound": words.count(WRAPAROUND),
            **_recent(look),
            "histories": _histories(look),
        }
    return page(look, asked, "database", _("Database"), ("lock_waits",), context)


def _recent(look: Look) -> View:
    numbers = _numbers(look)
    for minutes in LATELY_MINUTES:
        try:
            found = read_recent_writes(minutes * 60)
        except ReadTooLong:
            continue
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


def _histories(look: Look) -> list[View] | None:
    """Return the longest of a sample; None: the server did not finish it."""
    numbers = _numbers(look)
    try:
        found = read_longest_histories()
    except ReadTooLong:
        return None
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


def _wait(each: LockWait) -> View:
    return {
        "who": _session(each.application, each.user, each.pid),
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
