"""Projections in a database that was restored from another server, whose numbers of transactions
were higher: a position or a change of that server says nothing about this one.
"""

from typing import Any

import pytest
from django.db import connection

from sharding_app.adapters.django import projections as control
from sharding_app.entities.projections import Projection
from sharding_app.errors import AskTimeout
from tests.integration.adapters.django import test_projecting
from tests.integration.adapters.django.projected import Account, Payments, Writer, journal, log, part, run

pytestmark = pytest.mark.django_db(transaction=True)
writer, later = test_projecting.writer, test_projecting.later
HIGHER = 999_000_000_000


def execute(statement: str, *params: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, params)


def restored() -> None:
    """Leave what a dump of another server leaves here."""
    execute("UPDATE sharding_projection SET server = 'another'")
    execute("UPDATE sharding_change SET xid = (xid::text::bigint + %s)::text::xid8", HIGHER)
    execute(
        "UPDATE sharding_position SET position = (past || ':' || past || ':')::pg_snapshot"
        " FROM (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint + %s AS past) other",
        HIGHER,
    )


def test_a_version_that_is_new_there_handles_each_event_once(writer: Writer, later: type[Projection]) -> None:
    work = part()
    run(work)
    writer.append("a", 1, 2)
    writer.append("b", 1)
    writer.commit()
    run(work)
    restored()
    execute("DELETE FROM projected")
    second = part(later)
    for _ in range(4):
        run(second)
    assert sorted(each[:2] for each in log()) == journal()


def test_an_erasure_of_the_former_server_hides_no_event_of_the_next_life(
    writer: Writer, later: type[Projection]
) -> None:
    work = part()
    run(work)
    writer.append("a", 1, 2)
    writer.commit()
    run(work)
    test_projecting.erase("a")
    restored()
    execute("DELETE FROM projected")
    second = part(later)
    run(second)
    writer.append("a", 7, 8, first=1)
    writer.append("b", 5)
    writer.commit()
    for _ in range(3):
        run(second)
    assert sorted(each[:2] for each in log()) == journal()
    assert not control.held("projected.Payments", 2)


def test_no_event_that_a_refused_projection_lacks_is_trimmed(writer: Writer) -> None:
    run(part())
    writer.append("a", 1)
    writer.commit()
    run(part())
    restored()
    writer.append("a", 2, 3, 4)
    writer.commit()
    execute("UPDATE sharding_event SET at = now() - interval '1 year'")
    execute(
        "INSERT INTO sharding_snapshot (type_id, entity, seq, shard, epoch, state)"
        " SELECT id, 'a', 4, 0, 1, '{}' FROM sharding_type WHERE name = 'projected.Account'"
    )
    assert test_projecting.trim("a") == 0
    Payments.reset()
    run(part())
    assert [seq for _, seq, _ in log()] == [1, 2, 3, 4]


def test_a_refused_projection_has_caught_up_with_nothing(writer: Writer) -> None:
    run(part())
    writer.append("a", 1)
    writer.commit()
    run(part())
    restored()
    writer.append("a", 2)
    writer.commit()
    with pytest.raises(AskTimeout, match="did not show event 2"):
        Payments.caught_up_sync(Account.ref("a"), timeout=0)
