"""Plans about projections: their rows are changed, and the timeline says by whom."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any
from urllib.parse import urlencode

from django.db import DatabaseError
from django.http import QueryDict
from django.utils.translation import gettext as _

from sharding_app.adapters.django.database import READ_SECONDS, ReadTooLong
from sharding_app.admin.operator_plans.plan import Plan, Refused
from sharding_app.dashboard import words
from sharding_app.dashboard.keyset import storable
from sharding_app.errors import ShardingError
from sharding_app.operations import projections
from sharding_app.operations.cache import Look
from sharding_app.operations.projections import ProjectionLook
from sharding_app.redaction import traceable

logger = logging.getLogger("sharding.projection")


def pause(look: Look, given: QueryDict) -> Plan:
    found = _chosen(given)
    if found.status.paused:
        raise Refused(_("It is paused already."))
    return _plan(
        found,
        "pause",
        _("Pause {}").format(_title(found)),
        [
            _("No turn of it begins. One under way is carried through."),
            _("Its rows stay as they are, and events that it has not handled are kept for it."),
        ],
    )


def resume(look: Look, given: QueryDict) -> Plan:
    found = _chosen(given)
    if not found.status.paused:
        raise Refused(_("It is not paused."))
    return _plan(
        found,
        "resume",
        _("Resume {}").format(_title(found)),
        [_("It goes on within 2 seconds, where it was.")],
    )


def reset(look: Look, given: QueryDict) -> Plan:
    found = _chosen(given)
    if not found.declared:
        raise Refused(_("The code of this site does not have it, so its rows cannot be cleared here."))
    handled = words.count(found.events)
    return _plan(
        found,
        "reset",
        _("Reset {}").format(_title(found)),
        [
            _("Its method clear() is called in this web process, and its positions begin anew."),
            _("Readers see the old rows until then, and afterwards a fill under way."),
            _("{} events were handled so far. Those that are no longer in the journal do not come again.").format(handled),
            _("This cannot be undone."),
        ],
        danger=True,
    )  # fmt: skip


def retry(look: Look, given: QueryDict) -> Plan:
    found = _chosen(given)
    of, entity = _entity(given)
    return _plan(
        found,
        "retry",
        _("Retry in {title}: {of} {entity}").format(title=_title(found), of=of, entity=entity),
        [_("The event at which it waits is handled again, and later ones follow. Failures count from 0.")],
        type_name=of,
        entity=entity,
    )


def skip(look: Look, given: QueryDict) -> Plan:
    found = _chosen(given)
    of, entity = _entity(given)
    number = _number(given.get("number", ""), 18)
    return _plan(
        found,
        "skip",
        _("Skip event {number} in {title}: {of} {entity}").format(
            number=number, title=_title(found), of=of, entity=entity
        ),
        [
            _("The event is left out of this projection for good. Later events of the entity follow."),
            _("The entity itself and other projections are not affected."),
            _("This cannot be undone, except by a reset of the whole projection."),
        ],
        danger=True,
        type_name=of,
        entity=entity,
        number=number,
    )


def _chosen(given: QueryDict) -> ProjectionLook:
    name, version = given.get("name", ""), _number(given.get("version", ""), 9)
    found = projections.look_if_allowed(name) if storable(name) else []
    for each in found or ():
        if each.version == version:
            return each
    raise Refused(_("No node has run a projection of this name and version, or it was removed."))


def _number(text: str, digits: int) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= digits):
        raise Refused(_("A version, and the number of an event, is a number."))
    return int(text)


def _entity(given: QueryDict) -> tuple[str, str]:
    of, entity = given.get("type", ""), given.get("entity", "")
    if not (of and entity and storable(of) and storable(entity)):
        raise Refused(_("The id of the entity is missing."))
    return of, entity


def _title(found: ProjectionLook) -> str:
    return f"{found.name} {found.version}"


def _plan(
    found: ProjectionLook,
    action: str,
    title: str,
    consequences: list[str],
    *,
    danger: bool = False,
    **waits: Any,
) -> Plan:
    name, version = found.name, found.version
    return Plan(
        title=title,
        consequences=consequences,
        signed_work=partial(_carry_out, action, name, version, waits),
        back=f"projections/one/?{urlencode({'name': name, 'version': version})}",
        danger=danger,
    )


def _carry_out(action: str, name: str, version: int, waits: dict[str, Any], by: str) -> tuple[bool, str]:
    """Carry it out; return whether it went well, and the outcome in words."""
    try:
        done = projections.order(action, name, version, by, is_bounded=True, **waits)
    except ReadTooLong:
        return False, _(
            "nothing is changed: it took longer than {seconds:g} s. `manage.py sharding_projection` has no such limit."
        ).format(seconds=READ_SECONDS)
    except ShardingError as error:
        return False, error.message
    except DatabaseError as error:
        return False, str(error).partition("\n")[0]
    except Exception as error:
        logger.error(
            "clear() of %s:%s raised, and nothing is changed", name, version,
            exc_info=traceable(error), extra={"action": "projection_not_reset"},
        )  # fmt: skip
        return False, _("nothing is changed: its method clear() raised {}.").format(type(error).__qualname__)
    if not done:
        return False, _("nothing is changed: it does not wait there any more. It may have gone on.")
    return True, _("done")
