"""Reads a cluster's facts: one look at the rows, one question to every node."""

from collections.abc import Mapping
from datetime import datetime

from asgiref.sync import sync_to_async

from sharding_app.core.ids import Incarnation
from sharding_app.db import steady_reads
from sharding_app.management.status import Facts
from sharding_app.models import Node
from sharding_app.runtime.process import Process

_MOMENTS = """
    SELECT now(), (SELECT elected_at FROM sharding_coordinator),
        (SELECT coalesce(sum(n_live_tup), 0)::bigint FROM pg_stat_user_tables
            WHERE relid = 'sharding_event'::regclass
                OR relid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = 'sharding_event'::regclass))
"""
_Moments = tuple[datetime, datetime | None, int, Mapping[Incarnation, datetime]]


async def read_facts(process: Process, alias: str) -> Facts:
    """Look once. Raises StoreUnavailable, or a DatabaseError of Django's."""
    store = process.ports.store
    _, members = await store.members()
    coordinator, types, shards = await store.coordinator(), await store.types(), await store.shards()
    now, elected, events, joined = await sync_to_async(_moments)(alias)
    states = await process.region_states.ask(each.incarnation for each in members)
    _, still = await store.members()
    present = {each.incarnation for each in still}
    members = [each for each in members if each.incarnation in present or each.incarnation in states.answers]
    return Facts(
        now=now,
        cluster_id=process.cluster_id,
        members=members,
        coordinator=coordinator,
        types=types,
        shards=shards,
        joined=joined,
        elected=elected,
        events=events,
        answers=states.answers,
        failed=states.failed & present,
    )


def _moments(alias: str) -> _Moments:
    """What only Django's models know: times, by the server's clock."""
    with steady_reads(alias) as cursor:
        cursor.execute(_MOMENTS)
        now, elected, events = cursor.fetchone()
        joined = dict(Node.objects.using(alias).values_list("incarnation", "joined_at"))
    return now, elected, events, joined
