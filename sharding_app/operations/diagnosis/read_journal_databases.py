"""Reads the facts of several journals for the doctor. Raises Django's DatabaseError for the
cluster's own database alone.
"""

from django.db import connections

from sharding_app.adapters.django.database import run_query, steady_reads
from sharding_app.adapters.postgres.probe import lost_triggers
from sharding_app.operations.diagnosis.look import FurtherLook
from sharding_app.operations.diagnosis.postgres import room_of
from sharding_app.operations.each_journal import ask
from sharding_app.operations.journals import JournalFacts, epochs_here, lying_elsewhere, read_journals

_ROOM = ("max_connections", "superuser_reserved_connections", "reserved_connections")


def look_at_further() -> list[FurtherLook]:
    return [_look(each) for each in read_journals()]


def _look(facts: JournalFacts) -> FurtherLook:
    if not facts.name or not facts.place:
        return FurtherLook(facts=facts)
    asked = ask([facts.name], lambda alias: _read(alias, facts))
    return asked.found.get(facts.name, FurtherLook(facts=facts))


def _read(alias: str, facts: JournalFacts) -> FurtherLook:
    with steady_reads(alias) as cursor:
        settings = dict(run_query(cursor, "doctor_settings", {"names": list(_ROOM)}))
        names = [row[1] for row in run_query(cursor, "doctor_sessions")]
        fences = run_query(cursor, "schema_facts")
        left = run_query(cursor, "left_rows")
        lived = run_query(cursor, "lived_rows")
    connections[alias].close()
    lying = epochs_here(facts.name) if left else {}
    return FurtherLook(
        facts=facts,
        unfenced=tuple(f"sharding_{table}" for table, found, fenced, *_ in fences if found and not fenced),
        lost_triggers=lost_triggers(fences),
        room=room_of(settings),
        sessions=len(names),
        ours=sum(each.startswith("sharding/n-") for each in names),
        deserted=tuple(lying_elsewhere(facts.name, [(kind, shard) for kind, shard in lived]))
        if lived
        else (),
        refuted=tuple((kind, shard, to) for kind, shard, to in left if (kind, shard) in lying),
    )
