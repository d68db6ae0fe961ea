"""The plan to erase a person. The web process erases, as `sharding_erase_subject` does."""

from __future__ import annotations

from functools import partial

from django.http import QueryDict
from django.utils.translation import gettext as _

from sharding_app.adapters.django import database
from sharding_app.adapters.postgres.connection import Conninfo, hurried
from sharding_app.adapters.postgres.deletion import ServerError
from sharding_app.adapters.postgres.further_journals import UnknownJournals
from sharding_app.admin.operator_plans.plan import Plan, Refused
from sharding_app.dashboard.keyset import storable
from sharding_app.entities import identifiers
from sharding_app.operations.cache import Look
from sharding_app.operations.subjects import INTERRUPTIONS, SubjectErasure, counted_rows, erased, reason
from sharding_app.ports.journal import Erasure
from sharding_app.settings.load import get_settings
from sharding_app.wiring import conninfo

TIMEOUT_SECONDS = 10.0
"""A page waits no longer for one entity that is busy or moves."""


def erase(look: Look, given: QueryDict) -> Plan:
    subject = _subject(given)
    if not get_settings().personal_keys:
        raise Refused(
            _("PERSONAL_KEYS is empty in this web process: run `manage.py sharding_erase_subject`.")
        )
    try:
        found = counted_rows(conninfo(get_settings().lifeline_database), subject, _as_a_page)
    except (ServerError, UnknownJournals) as error:
        if getattr(error, "sqlstate", None) == database.QUERY_CANCELED:
            raise database.ReadTooLong from error
        raise Refused(reason(error)) from error
    return Plan(
        title=_("Erase the person {}").format(subject),
        logged=_("Erase a person"),
        consequences=_consequences(subject, found),
        signed_work=partial(_carry_out, subject),
        back="database/",
        danger=True,
        confirm=subject,
    )


def _as_a_page(way: Conninfo) -> Conninfo:
    """Limit the reads on that way, as those of any page are."""
    return hurried(way, database.READ_SECONDS, database.CONNECT_SECONDS)


def _subject(given: QueryDict) -> str:
    text = given.get("subject", "")
    try:
        if storable(text):
            return identifiers.entity_id(text)
    except (TypeError, ValueError):
        pass
    raise Refused(_("The id of the person is missing, or cannot be one."))


def _consequences(subject: str, found: SubjectErasure) -> list[str]:
    entities = [
        _("{type} is deleted: events: {events}, snapshots: {snapshots}, messages: {messages}.").format(
            type=f"{name} {subject}", events=rows.events, snapshots=rows.snapshots, messages=rows.messages
        )
        for name, rows in found.entities.items()
        if rows != Erasure()
    ]
    return [
        _("The key of the personal data is deleted. No journal, snapshot, message or archive shows it any more."),
        *(entities or [_("No entity is the person's own.")]),
        *(_("The projection {} has to be rebuilt: its tables may have the data.").format(each) for each in found.projections),
        *(_("Entities of {} in memory may show the data until they start again.").format(each) for each in found.in_memory),
        _("Backups of the database still have the key."),
        _("This cannot be undone. A person who comes back needs another id."),
    ]  # fmt: skip


def _carry_out(subject: str, by: str) -> tuple[bool, str]:
    """Carry it out; return whether it came to its end, and the outcome in words."""
    try:
        found = erased(
            conninfo(get_settings().lifeline_database), subject, by, TIMEOUT_SECONDS, lambda _text: None
        )
    except INTERRUPTIONS as error:
        return False, _("it did not come to its end: {} Erase the person again, to go on.").format(
            reason(error)
        )
    rows = sum(each.events for each in found.entities.values())
    entities = sum(each != Erasure() for each in found.entities.values())
    return True, _("done: the key; entities: {entities}, events: {events}").format(
        entities=entities, events=rows
    )
