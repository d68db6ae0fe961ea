"""`sharding_partition` as an operator sees it."""

import io
import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import psycopg
import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from sharding_app.adapters.postgres import partitioning
from sharding_app.adapters.postgres.partitioning import change_layout
from sharding_app.embedded import Servers
from tests.integration.adapters.postgres.journals import insert, types
from tests.support.scratch import make_tables, scratch_database


@pytest.fixture
def journal(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    with scratch_database(servers.database_url) as params:
        make_tables(params)
        types(params, 2)
        insert(params, 2, entities=10, events=10)
        monkeypatch.setattr("sharding_app.management.deletion_command.conninfo", lambda alias: params)
        yield params


def run(*arguments: str) -> str:
    out = io.StringIO()
    call_command("sharding_partition", *arguments, stdout=out, stderr=io.StringIO())
    return out.getvalue()


def test_it_shows_changes_and_divides(journal: dict[str, Any]) -> None:
    assert run().startswith("sharding_event is one table: ")
    assert "Would be copied into new tables: " in run("--by-type")
    assert run("--by-type").endswith("MiB.\n"), "nothing is changed without --yes"
    with pytest.raises(CommandError, match="add --by-type"):
        run("--parts", "T1=2", "--yes")
    shown = run("--by-type", "--yes")
    assert shown.startswith("sharding_event has a partition for each type:\n  T1: 1 table, ")
    assert "Would be copied" not in run("--by-type"), "it is so"
    found = json.loads(run("--parts", "T2=4", "--yes", "--json"))
    assert found["done"]
    assert found["partitioned"]
    assert [(each["type"], each["tables"]) for each in found["types"]] == [("T1", 1), ("T2", 4)]
    with psycopg.connect(**journal) as admin:
        assert admin.execute("SELECT count(*) FROM sharding_event").fetchone() == (200,)


def test_removing_a_type_reaches_the_former_table_that_a_killed_run_has_left(
    journal: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitioning, "EVENTS_AT_ONCE", 30)
    change = change_layout(journal, {}, "me")
    while next(change).name != "switched":
        pass
    change.close()
    call_command(
        "sharding_remove_journal", "T2", "--yes-delete-the-journal-of", "T2",
        stdout=io.StringIO(), stderr=io.StringIO(),
    )  # fmt: skip
    with psycopg.connect(**journal) as admin:
        for table in ("sharding_event", "sharding_event_before"):
            left = admin.execute(f"SELECT type_id, count(*) FROM {table} GROUP BY 1").fetchall()  # noqa: S608
            assert left == [(1, 100)], table


def test_an_empty_journal_is_partitioned(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    with scratch_database(servers.database_url) as params:
        make_tables(params)
        monkeypatch.setattr("sharding_app.management.deletion_command.conninfo", lambda alias: params)
        assert run("--by-type", "--yes") == "sharding_event has a partition for each type:\n"


def test_an_interrupted_change_is_shown_and_taken_back(journal: dict[str, Any]) -> None:
    run_of_steps = change_layout(journal, {}, "me")
    assert [each.name for each in islice(run_of_steps, 2)] == ["begun", "copied"]
    run_of_steps.close()
    assert "A change of the layout was begun: 200 of about " in run()
    assert run("--cancel") == "The copy is dropped.\n"
    assert run("--cancel") == "There is nothing to take back.\n"
    with pytest.raises(CommandError, match="stands alone"):
        run("--cancel", "--by-type")
    with pytest.raises(CommandError, match="is not TYPE=N"):
        run("--parts", "T1")
    with pytest.raises(CommandError, match="knows no type 'T7'"):
        run("--by-type", "--parts", "T7=2", "--yes")
