"""The dashboard's pages: for each an address, and who builds it out of a look.

A page is named by what stands behind the dashboard's own address, query and all
(`types/3/?from=2000`), so that a browser can ask for what it shows with the words of its address
bar.
"""

import re
from urllib.parse import parse_qs, urlsplit

from django.http import Http404
from django.utils.translation import gettext as _

from sharding_app.dashboard.keyset import storable
from sharding_app.dashboard.pages import charts, cluster, database, messages, projections, types
from sharding_app.dashboard.pages.page import Asked, Builder, Page
from sharding_app.dashboard.permissions import Rights
from sharding_app.operations.cache import Look

PAGES: tuple[tuple[str, str, Builder], ...] = (
    ("overview", "", cluster.overview_page),
    ("nodes", "nodes/", cluster.nodes_page),
    ("node", "nodes/<incarnation>/", cluster.node_page),
    ("types", "types/", types.types_page),
    ("type", "types/<number>/", types.type_page),
    ("shard", "types/<number>/shards/<shard>/", types.shard_page),
    ("entity", "types/<number>/entity/", types.entity_page),
    ("singletons", "singletons/", types.singletons_page),
    ("workers", "workers/", types.workers_page),
    ("messages", "messages/", messages.messages_page),
    ("message", "messages/one/", messages.message_page),
    ("projections", "projections/", projections.projections_page),
    ("projection", "projections/one/", projections.projection_page),
    ("charts", "charts/", charts.charts_page),
    ("load", "load/", cluster.load_page),
    ("database", "database/", database.database_page),
    ("timeline", "timeline/", cluster.timeline_page),
    ("trouble", "trouble/", cluster.trouble_page),
)
"""Name, address behind the dashboard's own, and who builds it."""

_SHAPES = {"number": r"\d{1,9}", "shard": r"\d{1,9}", "incarnation": r"[\w.-]{1,100}"}


def pattern(address: str) -> str:
    """An address as a regular expression."""
    return re.sub(r"<(\w+)>", lambda match: f"(?P<{match[1]}>{_SHAPES[match[1]]})", f"^{address}$")


_PATTERNS = tuple((re.compile(pattern(address), re.ASCII), builder) for _name, address, builder in PAGES)


def build(topic: str, look: Look, rights: Rights, base: str, *, live: bool = False) -> Page:
    """Build the page of that name. Raises Http404."""
    try:
        parts = urlsplit(topic)
    except ValueError:  # "http://["
        raise Http404(_("There is no such page.")) from None
    if not storable(topic):
        raise Http404(_("There is no such page."))
    query = {name: given[-1] for name, given in parse_qs(parts.query).items()}
    asked = Asked(rights=rights, base=base, query=query, live=live)
    for shape, builder in _PATTERNS:
        if match := shape.match(parts.path):
            return builder(look, asked, **match.groupdict())
    raise Http404(_("There is no such page."))
