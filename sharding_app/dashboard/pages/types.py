"""Pages about entity types: all of them, one with its shard map, one shard, one entity, the
singletons, and the workers.
"""

from django.http import Http404
from django.utils.translation import gettext as _

from sharding_app.dashboard.entity import entity_context
from sharding_app.dashboard.members import members_of
from sharding_app.dashboard.pages.charts import type_context
from sharding_app.dashboard.pages.decisions import about_shard
from sharding_app.dashboard.pages.messages import of_entity
from sharding_app.dashboard.pages.page import Asked, Page, Trail, page
from sharding_app.dashboard.presenters import shard_map, trouble, types
from sharding_app.dashboard.presenters.homes import View, homes
from sharding_app.dashboard.presenters.messages import counts
from sharding_app.operations.cache import Look
from sharding_app.operations.snapshot import TypeRow

MAX_CELLS = 2000


def types_page(look: Look, asked: Asked) -> Page:
    context: View = {"types": types.type_rows(look), "wide": True}
    return page(look, asked, "types", _("Entity types"), ("type_table",), context)


def type_page(look: Look, asked: Asked, number: str) -> Page:
    row = _type_row(look, number)
    every = row.config.numbering.most
    given = asked.query.get("from", "0")
    first = (
        min(int(given), every - 1) // MAX_CELLS * MAX_CELLS if given.isdecimal() and len(given) < 10 else 0
    )
    cells = shard_map.shard_map(look, row, range(first, min(every, first + MAX_CELLS)))
    context: View = {
        "type": types.one(look, row),
        "settings": types.settings(row),
        "cells": cells,
        "several_journals": len(look.cluster.journal_names) > 1,
        "map": shard_map.drawing(cells),
        "first": first,
        **type_context(look, asked, row.config.name),
        "summary": shard_map.states(cells),
        "balance": shard_map.balance(look, row),
        "windows": shard_map.windows(every, first, MAX_CELLS),
        "hottest": types.hottest(look, row.config.name),
        "troubles": trouble.troubles(look, row.config.name),
        "uncounted": bool(look.cluster.uncounted),
        "message_counts": next((each for each in counts(look) if each["name"] == row.config.name), None),
    }
    parts = "type_detail", "map_legend", "type_charts", "hottest", "troubles"
    return page(
        look, asked, "type", row.config.name, parts, context,
        section="types", trail=_above_a_type(), cells=[shard_map.short(cell) for cell in cells],
    )  # fmt: skip


def shard_page(look: Look, asked: Asked, number: str, shard: str) -> Page:
    row = _type_row(look, number)
    which = int(shard)
    if not row.config.numbering.has(which):
        raise Http404(_("This type has {} shards.").format(row.config.numbering.total))
    (cell,) = shard_map.shard_map(look, row, range(which, which + 1))
    after = asked.query.get("after", "")
    context: View = {
        "type": types.one(look, row),
        "cell": cell,
        "members": members_of(row.config.name, which, cell, after),
        "after": after,
        "targets": [each for each in homes(look).values() if each != cell["home"]],
        "decisions": about_shard(look, row.config.name, which),
    }
    parts = "shard_detail", "shard_members", "decisions"
    return page(
        look, asked, "shard", _("Shard {}").format(which), parts, context,
        section="types", trail=_below(row),
    )  # fmt: skip


def entity_page(look: Look, asked: Asked, number: str) -> Page:
    row = _type_row(look, number)
    entity = asked.query.get("id", "")
    found = entity_context(
        look, row, entity, asked.query.get("at", ""), payloads=asked.rights.payloads, rebuild=not asked.live
    )
    last = found.get("last", 0)
    context: View = {
        "type": types.one(look, row),
        **found,
        **_messages(look, row, asked, found),
        "news": _news(asked.query.get("seen", ""), last),
    }
    return page(
        look, asked, "entity", entity or _("Find an entity"), ("entity_news",), context,
        section="types", trail=_below(row), seen=f"seen={last}" if last else "",
    )  # fmt: skip


def _messages(look: Look, row: TypeRow, asked: Asked, found: View) -> View:
    if asked.live or not found["entity"] or found["refused"]:
        return {}
    return of_entity(look, row, found["entity"], payloads=asked.rights.payloads)


def singletons_page(look: Look, asked: Asked) -> Page:
    context: View = {"singletons": types.singleton_rows(look)}
    return page(look, asked, "singletons", _("Singletons"), ("singleton_table",), context)


def workers_page(look: Look, asked: Asked) -> Page:
    context: View = {"workers": types.worker_rows(look)}
    return page(look, asked, "workers", _("Workers"), ("worker_table",), context)


def _type_row(look: Look, number: str) -> TypeRow:
    found = next((each for each in look.cluster.types if each.number == int(number)), None)
    if found is None:
        raise Http404(_("The cluster knows no entity type of this number."))
    return found


def _above_a_type() -> Trail:
    return (("types/", _("Entity types")),)


def _below(row: TypeRow) -> Trail:
    return (*_above_a_type(), (f"types/{row.number}/", row.config.name))


def _news(seen: str, last: int) -> int:
    """The newest event, if there are newer ones than the page has shown."""
    return last if seen.isdecimal() and len(seen) < 20 and last > int(seen) else 0
