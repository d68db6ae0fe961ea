"""Pages about the cluster as a whole: the overview, its nodes, its timeline, what went wrong."""

from django.utils.translation import gettext as _

from sharding_app.dashboard.decision_tones import TONES
from sharding_app.dashboard.pages.decisions import SHOWN, decisions
from sharding_app.dashboard.pages.page import Asked, Page, page
from sharding_app.dashboard.presenters import charts, load, nodes, overview, trouble, types
from sharding_app.dashboard.presenters.homes import View
from sharding_app.operations.cache import Look

OVERVIEW_DECISIONS = 12


def overview_page(look: Look, asked: Asked) -> Page:
    tiles = overview.tiles(look)
    for tile in tiles:
        tile["line"] = charts.chart(look.samples, tile["chart"]) if tile["chart"] else None
    parts = "tiles", "cluster_actions", "node_table", "type_table", "decisions"
    context: View = {
        "tiles": tiles,
        "nodes": nodes.node_rows(look),
        "types": types.type_rows(look),
        "decisions": decisions(look, count=OVERVIEW_DECISIONS, without="shards_placed"),
    }
    return page(look, asked, "overview", _("Overview"), parts, context)


def nodes_page(look: Look, asked: Asked) -> Page:
    context: View = {"nodes": nodes.node_rows(look), "wide": True}
    return page(look, asked, "nodes", _("Nodes"), ("node_table",), context)


def node_page(look: Look, asked: Asked, incarnation: str) -> Page:
    """One that has gone has a page too: what was decided about it."""
    node = next((each for each in nodes.node_rows(look) if each["incarnation"] == incarnation), None)
    context: View = {
        "incarnation": incarnation,
        "node": node,
        "decisions": decisions(look, subject=incarnation),
    }
    if node is not None:
        context["hosted"] = nodes.hosted(look, incarnation)
        context["details"] = nodes.details(look, incarnation)
    title = _("A node that has gone") if node is None else node["name"]
    return page(
        look, asked, "node", title, ("node_detail", "decisions"), context,
        section="nodes", trail=(("nodes/", _("Nodes")),),
    )  # fmt: skip


def timeline_page(look: Look, asked: Asked) -> Page:
    before = asked.query.get("before", "")
    action = asked.query.get("action", "")
    shown = decisions(look, action=action, before=before)
    context: View = {
        "decisions": shown,
        "strip": trouble.strip(shown, look.cluster.now),
        "action": action,
        "actions": sorted(TONES),
        "older": shown[-1]["id"] if len(shown) == SHOWN else None,
        "newer": bool(before),
    }
    return page(look, asked, "timeline", _("Timeline"), ("time_strip", "decisions"), context)


def trouble_page(look: Look, asked: Asked) -> Page:
    context: View = {"drops": trouble.drops(look), "troubles": trouble.troubles(look)}
    return page(look, asked, "trouble", _("Drops and failures"), ("drops", "troubles"), context)


def load_page(look: Look, asked: Asked) -> Page:
    context: View = {
        "slowest": load.slowest(look),
        "hot_shards": load.hot_shards(look),
        "writers": load.writers(look),
    }
    return page(look, asked, "load", _("Load"), ("slowest", "hot_shards", "writers"), context)
