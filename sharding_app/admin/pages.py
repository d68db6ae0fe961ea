"""The dashboard's pages: for each an address, what it shows of a look, and which parts of it are live.

A part is a template under `sharding_app/parts/`; a page includes its parts, and the live feed renders the same parts
again. A page is named by what stands behind the dashboard's own address, query and all (`types/3/?from=2000`), so that
a browser can ask for what it shows with the words of its address bar.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from django.http import Http404
from django.template.loader import render_to_string
from django.utils.translation import gettext as _

from sharding_app.admin import words
from sharding_app.admin.entity import entity_context
from sharding_app.admin.members import members_of
from sharding_app.admin.permissions import Rights
from sharding_app.admin.presenters import charts, nodes, overview, shard_map, trouble, types
from sharding_app.admin.presenters.homes import View, homes
from sharding_app.core.moves import within
from sharding_app.http.collector import Look
from sharding_app.http.rows import TypeRow
from sharding_app.models import Decision

MAX_CELLS = 2000
TIMELINE_SHOWN = 100
TIMELINE_SEARCHED = 2000
OVERVIEW_DECISIONS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Who asks for a page, with what words."""

    rights: Rights
    base: str
    "The dashboard's own address on this admin site."
    query: Mapping[str, str] = field(default_factory=dict)
    live: bool = False
    "Only the live parts are wanted."


@dataclass(slots=True, kw_only=True)
class Page:
    """One page, ready to be rendered."""

    title: str
    template: str
    parts: tuple[str, ...]
    context: View
    trail: tuple[tuple[str, str], ...] = ()
    "Pages above this one: address behind the dashboard's own, and title."
    cells: list[list[Any]] | None = None
    "The shard map in short, for its live picture."
    section: str = ""
    seen: str = ""
    "What its browser adds to its words when it asks for what is new."

    def live(self) -> dict[str, Any]:
        """What a browser that shows this page needs to bring it up to date."""
        found: dict[str, Any] = {"parts": self.render()}
        if self.cells is not None:
            found["cells"] = self.cells
            found["summary"] = self.context["summary"]
        return found

    def render(self) -> dict[str, str]:
        """The live parts as HTML."""
        return {
            part: render_to_string(f"sharding_app/parts/{part}.html", self.context) for part in self.parts
        }


Builder = Callable[..., Page]


def _overview(look: Look, asked: Asked) -> Page:
    tiles = overview.tiles(look)
    for tile in tiles:
        tile["line"] = charts.chart(look.samples, tile["chart"]) if tile["chart"] else None
    return Page(
        title=_("Overview"),
        section="overview",
        template="overview",
        parts=("banner", "tiles", "cluster_actions", "node_table", "type_table", "decisions"),
        context={
            **_common(look, asked),
            "tiles": tiles,
            "nodes": nodes.node_rows(look),
            "types": types.type_rows(look),
            "decisions": _decisions(look, count=OVERVIEW_DECISIONS, without="shards_placed"),
        },
    )


def _nodes(look: Look, asked: Asked) -> Page:
    return Page(
        title=_("Nodes"),
        section="nodes",
        template="nodes",
        parts=("banner", "node_table"),
        context={**_common(look, asked), "nodes": nodes.node_rows(look), "wide": True},
    )


def _node(look: Look, asked: Asked, incarnation: str) -> Page:
    node = next((each for each in nodes.node_rows(look) if each["incarnation"] == incarnation), None)
    if node is None:
        return Page(
            title=_("A node that has gone"),
            section="nodes",
            template="node",
            parts=("banner", "node_detail", "decisions"),
            trail=(("nodes/", _("Nodes")),),
            context={
                **_common(look, asked),
                "incarnation": incarnation,
                "node": None,
                "decisions": _decisions(look, count=TIMELINE_SHOWN, subject=incarnation),
            },
        )
    return Page(
        title=node["name"],
        section="nodes",
        template="node",
        parts=("banner", "node_detail", "decisions"),
        trail=(("nodes/", _("Nodes")),),
        context={
            **_common(look, asked),
            "incarnation": incarnation,
            "node": node,
            "hosted": nodes.hosted(look, incarnation),
            "details": nodes.details(look, incarnation),
            "decisions": _decisions(look, count=TIMELINE_SHOWN, subject=incarnation),
        },
    )


def _types(look: Look, asked: Asked) -> Page:
    return Page(
        title=_("Entity types"),
        section="types",
        template="types",
        parts=("banner", "type_table"),
        context={**_common(look, asked), "types": types.type_rows(look), "wide": True},
    )


def _type_row(look: Look, number: int) -> TypeRow:
    found = next((each for each in look.rows.types if each.number == number), None)
    if found is None:
        raise Http404(_("The cluster knows no entity type of this number."))
    return found


def _type(look: Look, asked: Asked, number: str) -> Page:
    row = _type_row(look, int(number))
    every = row.config.number_of_shards
    given = asked.query.get("from", "0")
    first = (
        min(int(given), every - 1) // MAX_CELLS * MAX_CELLS if given.isdecimal() and len(given) < 10 else 0
    )
    cells = shard_map.shard_map(look, row, range(first, min(every, first + MAX_CELLS)))
    shown = homes(look)
    return Page(
        title=row.config.name,
        section="types",
        template="type",
        parts=("banner", "type_detail", "map_legend", "hottest", "troubles"),
        trail=(("types/", _("Entity types")),),
        cells=[shard_map.short(cell) for cell in cells],
        context={
            **_common(look, asked),
            "type": types.one(look, row),
            "settings": types.settings(row),
            "cells": cells,
            "drawing": shard_map.drawing(cells),
            "summary": shard_map.states(cells),
            "balance": shard_map.balance(cells, shown.values()),
            "windows": shard_map.windows(every, first, MAX_CELLS),
            "hottest": types.hottest(look, row.config.name),
            "troubles": trouble.troubles(look, row.config.name),
        },
    )


def _shard(look: Look, asked: Asked, number: str, shard: str) -> Page:
    row = _type_row(look, int(number))
    which = int(shard)
    if which >= row.config.number_of_shards:
        raise Http404(_("This type has {} shards.").format(row.config.number_of_shards))
    (cell,) = shard_map.shard_map(look, row, range(which, which + 1))
    after = asked.query.get("after", "")
    return Page(
        title=_("Shard {}").format(which),
        section="types",
        template="shard",
        parts=("banner", "shard_detail", "shard_members", "decisions"),
        trail=(("types/", _("Entity types")), (f"types/{row.number}/", row.config.name)),
        context={
            **_common(look, asked),
            "type": types.one(look, row),
            "cell": cell,
            "members": members_of(row.config.name, which, cell, after),
            "after": after,
            "targets": [each for each in homes(look).values() if each != cell["home"]],
            "decisions": _about_shard(look, row.config.name, which),
        },
    )


def _entity(look: Look, asked: Asked, number: str) -> Page:
    row = _type_row(look, int(number))
    entity = asked.query.get("id", "")
    context = entity_context(
        look, row, entity, asked.query.get("at", ""), payloads=asked.rights.payloads, rebuild=not asked.live
    )
    return Page(
        title=entity or _("Find an entity"),
        section="types",
        template="entity",
        parts=("banner", "entity_news"),
        trail=(("types/", _("Entity types")), (f"types/{row.number}/", row.config.name)),
        seen=f"seen={context['last']}" if context.get("last") else "",
        context={
            **_common(look, asked),
            "type": types.one(look, row),
            **context,
            "news": _news(asked.query.get("seen", ""), context.get("last", 0)),
        },
    )


def _news(seen: str, last: int) -> int:
    """The newest event, if there are newer ones than the page has shown."""
    return last if seen.isdecimal() and len(seen) < 20 and last > int(seen) else 0


def _singletons(look: Look, asked: Asked) -> Page:
    return Page(
        title=_("Singletons"),
        section="singletons",
        template="singletons",
        parts=("banner", "singleton_table"),
        context={**_common(look, asked), "singletons": types.singleton_rows(look)},
    )


def _timeline(look: Look, asked: Asked) -> Page:
    before = asked.query.get("before", "")
    action = asked.query.get("action", "")
    decisions = _decisions(look, count=TIMELINE_SHOWN, action=action, before=before)
    return Page(
        title=_("Timeline"),
        section="timeline",
        template="timeline",
        parts=("banner", "time_strip", "decisions"),
        context={
            **_common(look, asked),
            "decisions": decisions,
            "strip": trouble.strip(decisions, look.rows.now),
            "action": action,
            "actions": sorted(trouble.ACTIONS),
            "older": decisions[-1]["id"] if len(decisions) == TIMELINE_SHOWN else None,
            "newer": bool(before),
        },
    )


def _trouble(look: Look, asked: Asked) -> Page:
    return Page(
        title=_("Drops and failures"),
        section="trouble",
        template="trouble",
        parts=("banner", "drops", "troubles"),
        context={**_common(look, asked), "drops": trouble.drops(look), "troubles": trouble.troubles(look)},
    )


def _common(look: Look, asked: Asked) -> View:
    return {
        "base": asked.base,
        "rights": asked.rights,
        "banner": overview.banner(look),
        "coordinator": overview.coordinator(look),
        "now": look.rows.now,
        "cluster_id": look.rows.cluster_id,
        "journal_events": words.count(look.rows.events),
    }


def _decisions(
    look: Look, *, count: int, subject: str = "", action: str = "", before: str = "", without: str = ""
) -> list[View]:
    """Lines of the timeline, newest first. The table is kept short by the coordinator."""
    rows = Decision.objects.order_by("-id")
    if subject:
        rows = rows.filter(subject=subject) if "\x00" not in subject else rows.none()
    if without:
        rows = rows.exclude(action=without)
    if action:
        rows = rows.filter(action=action) if "\x00" not in action else rows.none()
    if before.isdecimal() and len(before) < 19:
        rows = rows.filter(id__lt=int(before))
    return trouble.decision_rows(rows[:count], homes(look), look.rows.now)


def _about_shard(look: Look, type_name: str, shard: int) -> list[View]:
    """The lines about one shard: its own, and those that name it among others."""
    rows = Decision.objects.filter(subject__in=(f"{type_name}/{shard}", type_name)).order_by("-id")
    about = [
        each for each in rows[:TIMELINE_SEARCHED] if each.subject != type_name or within(each.detail, shard)
    ]
    return trouble.decision_rows(about[:TIMELINE_SHOWN], homes(look), look.rows.now)


PAGES: tuple[tuple[str, str, Builder], ...] = (
    ("overview", "", _overview),
    ("nodes", "nodes/", _nodes),
    ("node", "nodes/<incarnation>/", _node),
    ("types", "types/", _types),
    ("type", "types/<number>/", _type),
    ("shard", "types/<number>/shards/<shard>/", _shard),
    ("entity", "types/<number>/entity/", _entity),
    ("singletons", "singletons/", _singletons),
    ("timeline", "timeline/", _timeline),
    ("trouble", "trouble/", _trouble),
)
"""Name, address behind the dashboard's own, and who builds it."""

_SHAPES = {"number": r"\d{1,9}", "shard": r"\d{1,9}", "incarnation": r"[\w.-]{1,100}"}


def pattern(address: str) -> str:
    """An address as a regular expression."""
    return re.sub(r"<(\w+)>", lambda match: f"(?P<{match[1]}>{_SHAPES[match[1]]})", f"^{address}$")


_PATTERNS = tuple((re.compile(pattern(address), re.ASCII), builder) for _name, address, builder in PAGES)


def build(topic: str, look: Look, rights: Rights, base: str, *, live: bool = False) -> Page:
    """Build the page of that name. Raises Http404."""
    parts = urlsplit(topic)
    query = {name: given[-1] for name, given in parse_qs(parts.query).items()}
    asked = Asked(rights=rights, base=base, query=query, live=live)
    for shape, builder in _PATTERNS:
        if match := shape.match(parts.path):
            return builder(look, asked, **match.groupdict())
    raise Http404(_("There is no such page."))
