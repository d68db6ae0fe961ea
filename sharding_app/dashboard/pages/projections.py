"""Pages about projections: all of them, and one version with its parts and the entities that
wait.
"""

from django.utils.translation import gettext as _

from sharding_app.adapters.django.database import bounded_reads
from sharding_app.dashboard.keyset import storable
from sharding_app.dashboard.pages.page import Asked, Page, page
from sharding_app.dashboard.presenters import projections as shown
from sharding_app.dashboard.presenters.homes import View
from sharding_app.operations import projections
from sharding_app.operations.cache import Look
from sharding_app.operations.projection_rates import Rates

SHOWN = 100
rates = Rates()


def projections_page(look: Look, asked: Asked) -> Page:
    found = projections.look_if_allowed()
    by_key = rates.of(found or ())
    context: View = {
        "allowed": found is not None,
        "projections": [shown.projection_row(each, by_key) for each in found or ()],
    }
    return page(look, asked, "projections", _("Projections"), ("projection_table",), context)


def projection_page(look: Look, asked: Asked) -> Page:
    """One that is not there any more has a page that says so."""
    name, version = asked.query.get("name", ""), asked.query.get("version", "")
    found = projections.look_if_allowed(name) if storable(name) else []
    by_key = rates.of(found or ())
    chosen = next((each for each in found or () if str(each.version) == version), None)
    context: View = {"allowed": found is not None, "projection": None, "name": name, "version": version}
    if chosen is not None:
        with bounded_reads():
            held = projections.held(chosen.name, chosen.version, SHOWN)
        numbers = {each.config.name: each.number for each in look.cluster.types}
        context |= {
            "projection": shown.projection_row(chosen, by_key),
            "projection_parts": shown.part_rows(chosen, by_key, look.cluster.now),
            "held": shown.held_rows(held, numbers, look.cluster.now, payloads=asked.rights.payloads),
            "more": len(held) == SHOWN,
            "several_journals": len(look.cluster.journal_names) > 1,
        }
    title = _("A projection that is not there") if chosen is None else f"{chosen.name} {chosen.version}"
    return page(
        look, asked, "projection", title, ("projection_detail",), context,
        section="projections", trail=(("projections/", _("Projections")),),
    )  # fmt: skip
