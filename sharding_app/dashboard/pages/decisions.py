"""Lines of the timeline, newest first, as a page shows them. The coordinator keeps their table
short.
"""

from collections.abc import Sequence
from datetime import datetime

from sharding_app.adapters.django.database import bounded_reads
from sharding_app.dashboard.keyset import storable
from sharding_app.dashboard.presenters import trouble
from sharding_app.dashboard.presenters.homes import View, homes
from sharding_app.models import Decision
from sharding_app.operations.cache import Look
from sharding_app.protocol.coordinator.timeline import within

SHOWN = 100
SEARCHED = 2000


def decisions(
    look: Look,
    *,
    count: int = SHOWN,
    subject: str = "",
    action: str = "",
    actions: Sequence[str] = (),
    before: str = "",
    without: str = "",
) -> list[View]:
    rows = Decision.objects.order_by("-id")
    if subject:
        rows = rows.filter(subject=subject) if storable(subject) else rows.none()
    if without:
        rows = rows.exclude(action=without)
    if action:
        rows = rows.filter(action=action) if storable(action) else rows.none()
    if actions:
        rows = rows.filter(action__in=actions)
    if before.isdecimal() and len(before) < 19:
        rows = rows.filter(id__lt=int(before))
    with bounded_reads():
        found = list(rows[:count])
    return trouble.decision_rows(found, homes(look), look.cluster.now)


def moments(since: datetime, actions: Sequence[str]) -> list[tuple[datetime, str]]:
    """Return when decisions of these kinds were made, newest first."""
    rows = Decision.objects.filter(action__in=actions, at__gte=since).order_by("-id")
    with bounded_reads():
        return list(rows.values_list("at", "action")[:SEARCHED])


def about_shard(look: Look, type_name: str, shard: int) -> list[View]:
    """The lines about one shard: its own, and those that name it among others."""
    rows = Decision.objects.filter(subject__in=(f"{type_name}/{shard}", type_name)).order_by("-id")
    with bounded_reads():
        found = list(rows[:SEARCHED])
    about = [each for each in found if each.subject != type_name or within(each.detail, shard)]
    return trouble.decision_rows(about[:SHOWN], homes(look), look.cluster.now)
