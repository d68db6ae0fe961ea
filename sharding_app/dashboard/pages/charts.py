"""The page of charts: the figures of the last hour or day, of the cluster or of one node."""

from django.http import Http404
from django.utils.translation import gettext as _

from sharding_app.dashboard.pages.decisions import decisions, moments
from sharding_app.dashboard.pages.page import Asked, Page, page
from sharding_app.dashboard.presenters import trends as shown
from sharding_app.dashboard.presenters.homes import View, homes
from sharding_app.operations.cache import Look
from sharding_app.operations.trends import trends

FIRST_RANGE = "1h"
LISTED = 20


def charts_page(look: Look, asked: Asked) -> Page:
    chosen = asked.query.get("range", FIRST_RANGE)
    if chosen not in shown.RANGES:
        raise Http404(_("There is no such page."))
    node = asked.query.get("node", "")
    nodes, actions = homes(look), tuple(shown.MARKED)
    trend = trends.trend(list(nodes), shown.RANGES[chosen].period, look.cluster.now)
    answered = node in trend.nodes if node else bool(trend.nodes)
    drawn = answered and trend.knows(node)
    context: View = {
        "range": chosen,
        "ranges": list(shown.RANGES),
        "chosen": node,
        "sources": shown.sources(trend, nodes, look.cluster.now),
        "trend_trouble": trend.trouble,
        "answered": answered,
        "charts": shown.charts(trend, nodes, node) if drawn else [],
        "drawing": shown.drawing(trend),
        "marks": shown.marked(trend, moments(trend.begins, actions)),
        "many": not node and len(trend.nodes) > shown.MOST_LINES,
        "decisions": decisions(look, actions=actions, count=LISTED),
    }
    return page(look, asked, "charts", _("Charts"), ("charts", "decisions"), context)
