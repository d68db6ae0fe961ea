"""A user's wish before it is carried out: its effects, and the process that is to be asked for it."""

from __future__ import annotations

from dataclasses import dataclass, field

from django.http import QueryDict
from django.utils.translation import gettext as _

from sharding_app.admin.presenters.homes import View
from sharding_app.core.ids import Incarnation
from sharding_app.core.messages import Steer
from sharding_app.http.collector import Look
from sharding_app.http.rows import TypeRow


class Refused(Exception):
    """The wish makes no sense now: in words for the operator."""


@dataclass(slots=True, kw_only=True)
class Plan:
    """What will happen, and who is to be asked for it."""

    title: str
    consequences: list[str]
    node: Incarnation
    wish: Steer
    back: str = ""
    "Where to go afterwards, behind the dashboard's own address."
    targets: list[View] = field(default_factory=list)
    "Nodes to choose from."
    danger: bool = False


def type_row(look: Look, given: QueryDict) -> TypeRow:
    for each in look.rows.types:
        if str(each.number) == given.get("type", ""):
            return each
    raise Refused(_("The cluster knows no entity type of this number."))
