"""Charts of the last hour or day: the page with the figures of the cluster or of one node, and
those on the page of a type.
"""

from django.http import Http404
from django.utils.translation import gettext as _

from sharding_app.dashboard.pages.decisions import decisions, moments
from sharding_app.dashboard.pages.page import Asked, Page, page
from sharding_app.dashboard.presenters import trends as shown
from sharding_app.dashboard.presenters.homes import View, homes
from sharding_app.operations.cache import Look
from sharding_app.operations.trends import ClusterTrend, trends

FIRST_RANGE = "1h"
LISTED = 20


def charts_page(look: Look, asked: Asked) -> Page:
    chosen = _range(asked)
    node = asked.query.get("node", "")
    nodes = homes(look)
    trend = trends.trend(list(nodes), shown.RANGES[chosen].period, look.cluster.now)
    answered = node in trend.nodes if node else bool(trend.nodes)
    drawn = answered and trend.knows(node)
    context: View = {
        **_common(trend, chosen),
        "chosen": node,
        "sources": shown.sources(trend, nodes, look.cluster.now),
        "answered": answered,
        "charts": shown.charts(trend, nodes, node) if drawn else [],
        "many": not node and len(trend.nodes) > shown.MOST_LINES,
        "decisions": decisions(look, actions=tuple(shown.MARKED), count=LISTED),
    }
    return page(look, asked, "charts", _("Charts"), ("charts", "decisions"), context)


def type_context(look: Look, asked: Asked, type_name: str) -> View:
    """Return what the charts on a type's page show. Raises Http404 for an unknown range."""
    chosen = _range(asked)
    nodes = homes(look)
    trend = trends.trend(list(nodes), shown.RANGES[chosen].period, look.cluster.now, type_name)
    return {
        **_common(trend, chosen),
        "answered": bool(trend.nodes),
        "silent": sorted(nodes[each]["name"] for each in trend.silent),
        "charts": shown.type_charts(trend, nodes) if trend.knows() else [],
    }


def _range(asked: Asked) -> str:
    chosen = asked.query.get("range", FIRST_RANGE)
    if chosen not in shown.RANGES:
        raise Http404(_("There is no such page."))
    return chosen


def _common(trend: ClusterTrend, chosen: str) -> View:
    return {
        "range": chosen,
        "ranges": list(shown.RANGES),
        "trend_trouble": trend.trouble,
        "drawing": shown.drawing(trend),
        "marks": shown.marked(trend, moments(trend.begins, tuple(shown.MARKED))),
    }
