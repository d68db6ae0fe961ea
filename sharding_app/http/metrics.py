"""The site's metrics: the cluster by its rows, and this web process's calls. Each node has metrics
of its own.

For members of staff who may see the dashboard, and for clients with `SHARDING["METRICS_TOKEN"]` as
their bearer token.
"""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from hmac import compare_digest
from types import MappingProxyType

from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from sharding_app import wiring
from sharding_app.adapters.django.database import ReadTooLong
from sharding_app.errors import WrongContext
from sharding_app.http.pages import hubs
from sharding_app.live.hub import REFUSALS, Hub
from sharding_app.operations import projections
from sharding_app.operations.database_health import Health, read_health
from sharding_app.operations.each_journal import journal_name
from sharding_app.operations.projections import ProjectionLook
from sharding_app.operations.snapshot import ClusterSnapshot, JournalCounts, read_snapshot
from sharding_app.runtime.asking.regions import RegionClient
from sharding_app.runtime.telemetry.exposition import CONTENT_TYPE, Family, Sample, render
from sharding_app.settings.load import get_settings

logger = logging.getLogger("sharding.client")


@require_safe
@never_cache
def metrics(request: HttpRequest) -> HttpResponse:
    """Serve the metrics for Prometheus, without those of the rows if the database does not
    answer. A server that answers about the cluster, and takes too long for the rest, is up.
    """
    if not _may_read(request):
        return HttpResponse(
            "This needs the bearer token, or a login of staff who may see the dashboard.\n", status=403
        )
    families = _of_calls() + live_families(hubs())
    try:
        rows = read_snapshot()
        families += cluster_families(rows) + journal_families(rows.journals)
        up = 1
    except DatabaseError:
        up = 0
    further: list[Callable[[], list[Family]]] = [
        lambda: database_families(read_health()),
        lambda: projection_families(projections.look_if_allowed() or ()),
    ]
    for read in further if up else ():
        try:
            families += read()
        except ReadTooLong as error:
            logger.warning("some metrics are left out: %s", error, extra={"action": "metrics_left_out"})
        except DatabaseError:
            up = 0
            break
    families.append(Family("sharding_database_up", "gauge", "1 if the database answers.", [Sample({}, up)]))
    return HttpResponse(render(families), content_type=CONTENT_TYPE)


def _may_read(request: HttpRequest) -> bool:
    token = get_settings().metrics_token
    given = request.headers.get("Authorization", "")
    if token and compare_digest(given.encode(), f"Bearer {token}".encode()):
        return True
    user = getattr(request, "user", None)
    return bool(
        user is not None
        and user.is_active
        and getattr(user, "is_staff", False)
        and user.has_perm("sharding.view_cluster")
    )


def _of_calls() -> list[Family]:
    try:
        portal = wiring.portal()
    except WrongContext:  # it can never connect; `health.ready` logs why
        return own_families(None)
    return own_families(None if portal.process is None else portal.process.region_client, portal.drops)


def own_families(
    client: RegionClient | None, not_begun: Mapping[tuple[str, str], int] = MappingProxyType({})
) -> list[Family]:
    """Return the metrics of this process's calls. `not_begun`: tells that were never sent."""
    connected = Family(
        "sharding_client_connected", "gauge", "1 if this process is connected to the cluster.",
        [Sample({}, client is not None)],
    )  # fmt: skip
    counts = Counter(not_begun) + (Counter() if client is None else client.drops)
    dropped = Family(
        "sharding_client_dropped_total", "counter", "Commands that were not delivered or not answered in time.",
        [Sample({"type": name, "reason": why}, count) for (name, why), count in sorted(counts.items())],
    )  # fmt: skip
    if client is None:
        return [connected, dropped]
    return [
        connected,
        Family(
            "sharding_client_asks_total", "counter", "Commands that this process has asked for.",
            [Sample({}, client.asks)],
        ),
        Family("sharding_client_answers_total", "counter", "Answers that it got.", [Sample({}, client.answers)]),
        Family(
            "sharding_client_pending_asks", "gauge", "Commands that are not answered yet.",
            [Sample({}, len(client.pending))],
        ),
        dropped,
    ]  # fmt: skip


def live_families(hubs: Sequence[Hub]) -> list[Family]:
    """Return the metrics of this process's live pages."""
    refused = [
        Sample({"reason": why}, sum(each.counters[f"refused_{why}"] for each in hubs)) for why in REFUSALS
    ]
    return [
        Family(
            "sharding_live_browsers", "gauge", "Browsers that are connected for live pages.",
            [Sample({}, sum(len(each.seats) for each in hubs))],
        ),
        Family(
            "sharding_live_subscriptions", "gauge",
            "Views that this process follows for them: one for each entity, view and arguments.",
            [Sample({}, sum(len(each.watches) for each in hubs))],
        ),
        Family(
            "sharding_live_messages_total", "counter", "Messages to browsers.",
            [Sample({}, sum(each.counters["messages"] for each in hubs))],
        ),
        Family("sharding_live_refused_total", "counter", "Views that browsers may not watch, by reason.", refused),
        Family(
            "sharding_live_lost_total", "counter", "Views that could not be shown for a while.",
            [Sample({}, sum(each.counters["lost"] for each in hubs))],
        ),
    ]  # fmt: skip


def cluster_families(rows: ClusterSnapshot) -> list[Family]:
    """Return the metrics of the rows."""
    nodes = Counter(each.state for each in rows.members)
    known = {each.incarnation for each in rows.members}
    shards: Counter[tuple[str, str]] = Counter()
    for each in rows.shards:
        state = each.step if each.home is None or each.home in known else "lost"
        shards[each.type, state] += each.shards
    leader = rows.has_coordinator
    return [
        Family(
            "sharding_nodes", "gauge", "Nodes, by state.",
            [Sample({"state": state}, nodes[state]) for state in ("joining", "up", "leaving")],
        ),
        Family(
            "sharding_nodes_suspect", "gauge", "Nodes that do not hold both of their locks.",
            [Sample({}, sum(each.locks < 2 and each.state != "joining" for each in rows.members))],
        ),
        Family(
            "sharding_nodes_deaf", "gauge", "Nodes that do not hear themselves.",
            [Sample({}, sum(each.deaf for each in rows.members))],
        ),
        Family(
            "sharding_type_resize_groups", "gauge", "Groups of shards of a type that is being resized, by state.",
            [
                Sample({"type": each.config.name, "state": state}, number)
                for each in rows.types
                if each.config.wanted
                for state, number in (
                    ("done", each.config.resized),
                    ("waiting", each.config.numbering.groups - each.config.resized),
                )
            ],
        ),
        Family("sharding_cluster_term", "gauge", "The coordinator's term.", [Sample({}, rows.coordinator.term)]),
        Family("sharding_cluster_has_coordinator", "gauge", "1 if one is there.", [Sample({}, leader)]),
        Family(
            "sharding_type_shards", "gauge", "Shards of each type, by state.",
            [Sample({"type": name, "state": state}, count) for (name, state), count in sorted(shards.items())],
        ),
        Family(
            "sharding_journal_rows", "gauge",
            "Events in the journal, as the server's statistics know it, with copies that moves between journals have made.",
            [Sample({}, rows.events)],
        ),
        Family(
            "sharding_messages", "gauge",
            "Durable messages and timers that wait, as the server's statistics know it.",
            [Sample({}, rows.messages)],
        ),
        Family(
            "sharding_messages_waiting", "gauge",
            "Durable messages and timers that are overdue, failing or parked; of each type and state up to 1000.",
            [
                Sample({"type": each.type, "state": state}, count)
                for each in rows.message_counts
                for state, count in (
                    ("overdue", each.overdue), ("failing", each.failing), ("parked", each.parked)
                )
            ],
        ),
        Family(
            "sharding_messages_oldest_seconds", "gauge",
            "For how long the oldest of the overdue ones has been due; 0: none is overdue.",
            [Sample({"type": each.type}, each.oldest_seconds) for each in rows.message_counts],
        ),
        Family(
            "sharding_messages_uncounted", "gauge",
            "Journals whose messages and timers are in none of these, since to count them takes too long.",
            [Sample({}, len(rows.uncounted))],
        ),
    ]  # fmt: skip


def journal_families(journals: Sequence[JournalCounts]) -> list[Family]:
    """Return the metrics of each of several journals; none where there is one."""
    if not journals:
        return []
    labels = [{"journal": journal_name(each.name)} for each in journals]
    answering = [(label, each) for label, each in zip(labels, journals, strict=True) if not each.trouble]
    return [
        Family(
            "sharding_journal_up", "gauge", "1 if the database of the journal answers.",
            [Sample(label, not each.trouble) for label, each in zip(labels, journals, strict=True)],
        ),
        Family(
            "sharding_journal_shards", "gauge", "Shards that lie in the journal.",
            [Sample(label, each.shards) for label, each in zip(labels, journals, strict=True)],
        ),
        Family(
            "sharding_journal_events", "gauge",
            "Events in the journal, as its server's statistics know it, with copies that moves between journals have made.",
            [Sample(label, each.events) for label, each in answering],
        ),
        Family(
            "sharding_journal_messages", "gauge",
            "Durable messages and timers that wait in the journal, as its server's statistics know it.",
            [Sample(label, each.messages) for label, each in answering],
        ),
    ]  # fmt: skip


def projection_families(found: Sequence[ProjectionLook]) -> list[Family]:
    """Return the metrics of projections."""
    labels = [{"projection": each.name, "version": str(each.version)} for each in found]
    # Those of the cluster's own journal bear no name of a journal.
    of_journals = [
        ({**label, "journal": journal} if journal else label, part)
        for label, each in zip(labels, found, strict=True)
        for journal, part in each.by_journal.items()
    ]
    return [
        Family(
            "sharding_projection_behind_events", "gauge", "Events that are not handled; of each part up to 1000 changes.",
            [Sample(label, part.behind_events) for label, part in of_journals],
        ),
        Family(
            "sharding_projection_behind_seconds", "gauge", "Age of the oldest of these.",
            [Sample(label, part.behind_seconds) for label, part in of_journals],
        ),
        Family(
            "sharding_projection_events_total", "counter", "Events that were handled since its last fill began.",
            [Sample(label, each.events) for label, each in zip(labels, found, strict=True)],
        ),
        Family(
            "sharding_projection_waiting", "gauge", "Entities that wait since an event has failed, by state.",
            [
                Sample({**label, "state": state}, count)
                for label, each in zip(labels, found, strict=True)
                for state, count in (("failing", each.waiting - each.parked), ("parked", each.parked))
            ],
        ),
        Family(
            "sharding_projection_paused", "gauge", "1 if an operator has paused it.",
            [Sample(label, each.status.paused) for label, each in zip(labels, found, strict=True)],
        ),
    ]  # fmt: skip


def database_families(health: Health) -> list[Family]:
    """Return the metrics of the tables and of locks."""
    tables = health.tables
    return [
        Family(
            "sharding_table_bytes", "gauge", "Size of each table of the app, and of its indexes.",
            [
                Sample({"table": each.name, "part": part}, size)
                for each in tables
                for part, size in (("table", each.table_bytes), ("indexes", each.index_bytes))
            ],
        ),
        Family(
            "sharding_table_rows", "gauge", "Rows of each table, as the server's statistics know it.",
            [
                Sample({"table": each.name, "state": state}, count)
                for each in tables
                for state, count in (("live", each.live_rows), ("dead", each.dead_rows))
            ],
        ),
        Family(
            "sharding_database_transaction_age", "gauge",
            "Transactions since the oldest number that is not frozen; at 2.1e9 PostgreSQL refuses writes.",
            [Sample({}, health.age)],
        ),
        Family(
            "sharding_database_wal_bytes_total", "counter", "Bytes of write-ahead log that the server has written.",
            [Sample({}, health.wal_bytes)],
        ),
        Family(
            "sharding_lock_waits", "gauge", "Sessions of the database that wait for a lock; up to 50.",
            [Sample({}, len(health.waits))],
        ),
        Family(
            "sharding_lock_wait_oldest_seconds", "gauge", "How long the longest of these waits has lasted.",
            [Sample({}, max((each.seconds for each in health.waits), default=0.0))],
        ),
    ]  # fmt: skip
