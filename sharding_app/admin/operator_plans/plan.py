"""A user's request before it is carried out: its effects, and the process that is to be asked for
it, or the change of rows that it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from django.http import QueryDict
from django.utils.translation import gettext as _

from sharding_app.dashboard.presenters.homes import View
from sharding_app.operations.cache import Look
from sharding_app.operations.snapshot import TypeRow
from sharding_app.protocol.ids import Incarnation
from sharding_app.protocol.messages import OperatorRequest


class Refused(Exception):
    """The request makes no sense now: in words for the operator."""


@dataclass(slots=True, kw_only=True)
class Plan:
    """What will happen, and who is to be asked for it: a node, or the database (`work`)."""

    title: str
    consequences: list[str]
    node: Incarnation = ""
    request: OperatorRequest | None = None
    work: Callable[[], tuple[bool, str]] | None = None
    "Changes rows; returns whether that went well, and the outcome in words."
    signed_work: Callable[[str], tuple[bool, str]] | None = None
    "The same, for a change that is noted with the user's name."
    fields: list[tuple[str, str]] | None = None
    "Names and values that carry it out. None: those that have asked for the plan."
    back: str = ""
    "Where to go afterwards, behind the dashboard's own address."
    targets: list[View] = field(default_factory=list)
    "Nodes to choose from."
    danger: bool = False
    confirm: str = ""
    "The user types this before it is carried out."
    logged: str = ""
    "Its title in the admin's history, where that of the page has what must not stay."


def type_row(look: Look, given: QueryDict) -> TypeRow:
    for each in look.cluster.types:
        if str(each.number) == given.get("type", ""):
            return each
    raise Refused(_("The cluster knows no entity type of this number."))
