"""The rows of the cluster, as the site and the commands read them."""

from uuid import uuid4

import psycopg
import pytest
from django.db import connection

from sharding_app.adapters.django import database
from sharding_app.operations import snapshot
from sharding_app.operations.snapshot import read_snapshot


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize(
    ("granted", "counted"), [("", 0), ("SELECT (type_id, shard, epoch, parked, due, error)", 1)]
)
def test_a_role_that_may_not_read_messages_reads_the_rest(granted: str, counted: int) -> None:
    """As docs/roles.md grants it to a site."""
    name = f"site_{uuid4().hex[:12]}"
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO sharding_message (id, type_id, shard, entity, seq, position, target_type, target, command, args,"
            " due, parked) VALUES ('1', 1, 0, 'e', 1, 0, 'shop.Cart', 'e', 'add', '', now(), true)"
        )
        cursor.execute(
            f"CREATE ROLE {name};"
            " GRANT SELECT ON sharding_cluster, sharding_coordinator, sharding_node, sharding_type, sharding_shard,"
            f" sharding_move TO {name}"
        )
        if granted:
            cursor.execute(f"GRANT {granted} ON sharding_message TO {name}")
        cursor.execute(f"SET LOCAL ROLE {name}")
        found = read_snapshot()
        cursor.execute("RESET ROLE")
    assert sum(each.shards for each in found.shards) == 10
    assert [each.parked for each in found.message_counts] == [1] * counted


@pytest.mark.usefixtures("rows")
def test_a_shard_that_is_closed_for_a_move_is_told_from_others_without_a_home() -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE sharding_shard SET home = NULL, step = 'stopped' WHERE shard IN (3, 4, 5)")
        cursor.execute(
            "INSERT INTO sharding_move (type_id, shard, source, target, step, closed_until, at)"
            " SELECT id, shard, '', 'two', step, CASE step WHEN 'closed' THEN now() END, now() - interval '1 hour'"
            " FROM sharding_type, (VALUES (3, 'closed'), (4, 'copying')) AS moves (shard, step)"
            " WHERE name = 'shop.Cart'"
        )
    found = {each.row.shard: each for each in read_snapshot().unsettled}
    assert {shard: each.target for shard, each in found.items()} == {3: "two", 4: None, 5: None}
    assert found[3].closed_seconds >= 3600


@pytest.mark.usefixtures("rows")
def test_a_shared_lock_and_the_lock_of_a_stranger_are_no_sign_of_life() -> None:
    """The cluster itself counts neither: the pages show a node as its coordinator sees it."""
    ours, name = connection.get_connection_params(), f"stranger_{uuid4().hex[:12]}"
    with psycopg.connect(**ours, autocommit=True) as other:
        other.execute("SELECT pg_advisory_lock(1), pg_advisory_lock_shared(-1), pg_advisory_lock(2)")
        other.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'secret'".encode())
        try:
            with psycopg.connect(**{**ours, "user": name, "password": "secret"}) as stranger:
                stranger.execute("SELECT pg_advisory_lock(-2)")
                assert [each.locks for each in read_snapshot().members] == [1, 1, 0]
        finally:
            other.execute(f"DROP ROLE {name}".encode())


@pytest.mark.django_db(transaction=True)
def test_a_count_that_takes_too_long_leaves_all_else_to_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator needs the dashboard most while a database is slow."""
    monkeypatch.setattr(database, "READ_SECONDS", 0.3)
    monkeypatch.setattr(snapshot, "_left_out_until", {})
    with psycopg.connect(**connection.get_connection_params()) as other:
        other.execute("LOCK sharding_message")
        found = read_snapshot()
        assert (found.uncounted, list(found.message_counts)) == ([""], [])
    assert found.coordinator.term == 0
    assert read_snapshot().uncounted == [""], "it is not tried again at once"
    monkeypatch.setattr(snapshot, "_left_out_until", {})
    monkeypatch.setattr(database, "READ_SECONDS", 5.0)
    assert read_snapshot().uncounted == []
