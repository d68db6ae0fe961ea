"""The tables are made on the cluster's alias and nowhere else, and the fence comes with them."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.core.management import call_command

from sharding_app.adapters.postgres.probe import schema_facts
from sharding_app.embedded import Servers
from tests.support.scratch import TABLES, make_tables, scratch_database

ROOT = Path(__file__).resolve().parents[4]

SITE = """
import json, sys
import django
from django.conf import settings
from django.core.management import call_command

given = json.loads(sys.argv[1])
settings.configure(
    DATABASES=given["databases"], INSTALLED_APPS=["sharding_app"], SHARDING=given["sharding"], USE_TZ=True,
)
django.setup()
from django.db import connections

found = {}
for commands in given["commands"]:
    call_command(*commands, verbosity=0)
    found = {alias: sorted(connections[alias].introspection.table_names()) for alias in given["databases"]}
print(json.dumps(found))
"""


def alias(params: dict[str, Any]) -> dict[str, Any]:
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": params["dbname"],
        "USER": params["user"],
        "PASSWORD": params.get("password", ""),
        "HOST": params["host"],
        "PORT": params["port"],
    }


def run_site(
    databases: dict[str, Any], commands: list[list[str]], sharding: dict[str, str] | None = None
) -> dict[str, list[str]]:
    """Run commands in a site of its own, with our app alone, and return the tables of each
    alias.
    """
    given = json.dumps({"databases": databases, "commands": commands, "sharding": sharding or {}})
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SITE, given],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


@pytest.fixture
def empty(servers: Servers) -> Iterator[dict[str, Any]]:
    with scratch_database(servers.database_url) as params:
        yield params


@pytest.fixture
def second(servers: Servers) -> Iterator[dict[str, Any]]:
    with scratch_database(servers.database_url) as params:
        yield params


OURS = {f"sharding_{table}" for table in TABLES}


def ours(tables: list[str]) -> set[str]:
    return {table for table in tables if table.startswith("sharding_")}


def test_only_the_clusters_alias_gets_tables(
    empty: dict[str, Any], second: dict[str, Any], tmp_path: Path
) -> None:
    databases = {
        "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "db.sqlite3")},
        "cluster": alias(empty),
        "other": alias(second),
    }
    migrate = [["migrate", "--database", name] for name in databases]
    found = run_site(databases, migrate, {"DATABASE": "cluster"})
    assert {name: ours(tables) for name, tables in found.items()} == {
        "default": set(),
        "cluster": OURS,
        "other": set(),
    }
    assert schema_facts(empty).missing_tables == ()
    assert schema_facts(empty).unfenced_tables == ()
    assert schema_facts(empty).lost_triggers == ()
    back = [["migrate", "sharding", "zero", "--database", name] for name in databases]
    found = run_site(databases, back, {"DATABASE": "cluster"})
    assert all(not ours(tables) for tables in found.values())
    run_site(databases, migrate, {"DATABASE": "cluster"})


def test_the_direct_alias_of_the_clusters_database_may_migrate(empty: dict[str, Any]) -> None:
    databases = {"default": alias(empty), "direct": alias(empty)}
    settings = {"LIFELINE_DATABASE": "direct"}
    directly, again = ["migrate", "--database", "direct"], ["migrate"]
    assert ours(run_site(databases, [directly, again], settings)["default"]) == OURS
    back = ["migrate", "sharding", "zero", "--database", "direct"]
    assert not ours(run_site(databases, [back], settings)["default"])


def test_a_site_on_sqlite_alone_migrates(tmp_path: Path) -> None:
    databases = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "db.sqlite3")}}
    commands = [["migrate"], ["migrate", "--run-syncdb"], ["migrate", "sharding", "zero"]]
    assert not ours(run_site(databases, commands)["default"])


def test_the_tables_may_live_in_a_schema_of_their_own(empty: dict[str, Any]) -> None:
    with psycopg.connect(**empty, autocommit=True) as admin:
        admin.execute('CREATE SCHEMA "My Cluster"')
    database = alias(empty) | {"OPTIONS": {"options": '-c search_path="My\\ Cluster"'}}
    assert ours(run_site({"default": database}, [["migrate"]])["default"]) == OURS
    with psycopg.connect(**empty, autocommit=True) as admin:
        assert admin.execute("SELECT to_regclass('sharding_event')").fetchone() == (None,)
        with pytest.raises(psycopg.Error, match="not at the epoch"):
            admin.execute(
                'INSERT INTO "My Cluster".sharding_event (type_id, entity, seq, shard, epoch, name, version, payload)'
                " VALUES (1, 'a', 1, 0, 1, 'E', 1, '{}')"
            )


def test_missing_tables_and_fences_are_seen(empty: dict[str, Any]) -> None:
    assert {f"sharding_{name}" for name in schema_facts(empty).missing_tables} == OURS
    make_tables(empty)
    with psycopg.connect(**empty, autocommit=True) as admin:
        admin.execute("ALTER TABLE sharding_event DISABLE TRIGGER sharding_fence")
        admin.execute("DROP TRIGGER sharding_fence_update ON sharding_snapshot")
    assert schema_facts(empty).unfenced_tables == ("event", "snapshot")


def test_other_triggers_that_are_missing_are_seen(empty: dict[str, Any]) -> None:
    """Without the first, no home looks for the messages of a type."""
    make_tables(empty)
    assert schema_facts(empty).lost_triggers == ()
    with psycopg.connect(**empty, autocommit=True) as admin:
        admin.execute("ALTER TABLE sharding_message DISABLE TRIGGER sharding_uses_messages")
        admin.execute("DROP TRIGGER sharding_partition_type ON sharding_type")
    assert schema_facts(empty).unfenced_tables == ()
    assert schema_facts(empty).lost_triggers == (
        "sharding_partition_type on sharding_type",
        "sharding_uses_messages on sharding_message",
    )


@pytest.mark.django_db(transaction=True)
def test_no_migration_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("makemigrations", "sharding", "--check", "--dry-run")
    assert "No changes detected" in capsys.readouterr().out


@pytest.mark.django_db(transaction=True)
def test_the_sql_can_be_read_beforehand(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("sqlmigrate", "sharding", "0001")
    assert "CREATE TABLE sharding_event" in capsys.readouterr().out


def test_hot_rows_are_set_up_for_their_work(scratch: dict[str, Any]) -> None:
    with psycopg.connect(**scratch) as connection:
        found = dict(
            connection.execute(
                "SELECT relname, reloptions FROM pg_class WHERE relname LIKE 'sharding\\_%' AND relkind = 'r'"
            ).fetchall()
        )
        collations = connection.execute(
            "SELECT count(*) FROM pg_attribute a JOIN pg_collation c ON c.oid = a.attcollation"
            " WHERE a.attrelid::regclass::text LIKE 'sharding\\_%' AND a.attname = 'entity' AND c.collname = 'C'"
        ).fetchone()
    for hot in ("shard", "node", "coordinator"):
        assert any(option.startswith("fillfactor=") for option in found[f"sharding_{hot}"])
    for hot in ("shard", "node", "snapshot", "event", "remembered"):
        assert any(option.startswith("autovacuum_") for option in found[f"sharding_{hot}"])
    assert collations is not None
    assert collations[0] >= 3
