"""Our own migrations take no long lock on a loaded journal: read in their SQL, and tried beside an append that goes on."""

import ast
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from project.servers import Servers
from sharding_app.migrations._sql import load
from tests.live import until
from tests.postgres.migration_rules import LOADED, broken, statements
from tests.postgres.scratch import FILES, make_tables, scratch_database

MIGRATIONS = Path(__file__).resolve().parents[2] / "sharding_app" / "migrations"
FIRST = ("0001_tables", "0001_fence", "0001_coordinator")
LATER = tuple(name for name in FILES if name not in FIRST)
CONCURRENT = tuple(name for name in LATER if "CONCURRENTLY" in load(name))
"""Each is one statement, which waits for the transactions that were there before it."""
APPEND = (
    "INSERT INTO sharding_event (type_id, entity, seq, shard, epoch, name, version, payload)"
    " VALUES (1, 'a', %s, 0, 1, 'E', 1, '{}')"
)
WAITS = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%%CREATE INDEX CONCURRENTLY%%' AND wait_event_type = 'Lock'"


def test_every_file_is_known() -> None:
    there = {path.stem for path in (MIGRATIONS / "sql").glob("*.sql")}
    assert {name for name in there if not name.endswith("_drop")} == set(FILES)


@pytest.mark.parametrize("name", LATER)
def test_no_file_after_the_first_rewrites_or_locks_what_grows(name: str) -> None:
    assert list(statements(load(name))), "it says something"
    assert broken(load(name)) == []


def test_migrations_change_tables_through_those_files_alone() -> None:
    """The other operations are Django's state only."""
    for path in sorted(MIGRATIONS.glob("0*.py")):
        (migration,) = (each for each in ast.parse(path.read_text()).body if isinstance(each, ast.ClassDef))
        (operations,) = (
            each.value
            for each in migration.body
            if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "operations"
        )
        assert isinstance(operations, ast.List)
        for each in operations.elts:
            assert isinstance(each, ast.Call)
            if ast.unparse(each.func) == "migrations.SeparateDatabaseAndState":
                (direct,) = (word.value for word in each.keywords if word.arg == "database_operations")
                assert isinstance(direct, ast.List)
                assert all(ast.unparse(call).startswith("RunFiles(") for call in direct.elts), path.name
            else:
                assert ast.unparse(each.func) == "RunFiles", path.name


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("CREATE INDEX late ON @schema@.sharding_event (at);", "CONCURRENTLY"),
        ("ALTER TABLE @schema@.sharding_event ALTER COLUMN seq TYPE numeric;", "rewrites"),
        ("ALTER TABLE sharding_event ADD COLUMN x text NOT NULL DEFAULT md5(random()::text);", "rewrites"),
        ("ALTER TABLE sharding_event ADD CONSTRAINT c CHECK (seq > 0);", "rewrites"),
        ("ALTER TABLE sharding_event ADD COLUMN x text, ALTER COLUMN seq SET DATA TYPE numeric;", "rewrites"),
        ("UPDATE sharding_event SET version = 1;", "not rows"),
        ("DROP TABLE @schema@.sharding_cluster, @schema@.sharding_snapshot;", "not dropped"),
    ],
)
def test_what_would_lock_is_found(sql: str, why: str) -> None:
    (fault,) = broken(f"-- a comment; with a semicolon\n{sql}")
    assert why in fault


def test_what_takes_a_moment_is_allowed() -> None:
    fine = """
    CREATE TABLE @schema@.sharding_new (a integer);
    CREATE INDEX ON @schema@.sharding_new (a);
    CREATE INDEX CONCURRENTLY late ON @schema@.sharding_event (at);
    ALTER TABLE sharding_event ADD COLUMN x text COLLATE "C";
    ALTER TABLE sharding_event ADD COLUMN y boolean NOT NULL DEFAULT false;
    ALTER TABLE sharding_event ADD CONSTRAINT c CHECK (seq > 0) NOT VALID;
    ALTER TABLE sharding_event VALIDATE CONSTRAINT c;
    ALTER TABLE sharding_node ADD COLUMN z jsonb NOT NULL DEFAULT '[1]';
    CREATE FUNCTION f() RETURNS void LANGUAGE plpgsql AS $f$ BEGIN UPDATE sharding_event SET seq = 1; END $f$;
    """
    assert broken(fine) == []


def test_they_pass_while_an_append_is_under_way_and_rewrite_nothing(servers: Servers) -> None:
    with scratch_database(servers.database_url) as params:
        with psycopg.connect(**params, autocommit=True) as admin:
            for name in FIRST:
                admin.execute(load(name).encode())
            admin.execute(
                "INSERT INTO sharding_type (name, kind, number_of_shards, extractor, hash_version, role, store_mode)"
                " VALUES ('a.B', 'event_sourced', 1, 'h', 'h', '', 'postgres')"
            )
            admin.execute(
                "INSERT INTO sharding_shard (type_id, shard, epoch, home, step) SELECT id, 0, 1, 'me', 'home' FROM sharding_type"
            )
        with psycopg.connect(**params) as writer, psycopg.connect(**params, autocommit=True) as migrating:
            writer.execute(
                "INSERT INTO sharding_event (type_id, entity, seq, shard, epoch, name, version, payload)"
                " VALUES (1, 'a', 1, 0, 1, 'E', 1, '{}')"
            )
            before = files(migrating)
            migrating.execute("SET lock_timeout = '500ms'")
            for name in LATER:
                if name not in CONCURRENT:
                    migrating.execute(load(name).encode())
            assert files(migrating) == before
            writer.commit()
            for name in CONCURRENT:
                migrating.execute(load(name).encode())
            assert files(migrating) == before
            row = migrating.execute("SELECT count(*) FROM sharding_event").fetchone()
            assert row == (1,)


@pytest.mark.parametrize("name", CONCURRENT)
def test_an_index_is_built_beside_appends_that_come_and_go(servers: Servers, name: str) -> None:
    """It waits for those that are under way when it begins, and holds up none."""
    with scratch_database(servers.database_url) as params:
        make_tables(params)
        with psycopg.connect(**params, autocommit=True) as admin:
            admin.execute(load(f"{name[:4]}_drop").encode())
            admin.execute(
                "INSERT INTO sharding_shard (type_id, shard, epoch, home, step) VALUES (1, 0, 1, 'me', 'home')"
            )
        with psycopg.connect(**params) as writer, ThreadPoolExecutor(1) as pool:
            writer.execute(APPEND, [1])
            building = pool.submit(run_alone, params, load(name))
            with psycopg.connect(**params, autocommit=True) as other:
                until(lambda: other.execute(WAITS).fetchone() == (1,), 10, "the index waits for the append")
                other.execute("SET lock_timeout = '500ms'")
                other.execute(APPEND, [2])
            assert not building.done()
            writer.commit()
            building.result(30)
        with psycopg.connect(**params) as admin:
            row = admin.execute("SELECT count(*) FROM pg_index WHERE NOT indisvalid").fetchone()
            assert row == (0,)


def run_alone(params: dict[str, Any], statement: str) -> None:
    with psycopg.connect(**params, autocommit=True) as connection:
        connection.execute(statement.encode())


def files(connection: psycopg.Connection[Any]) -> dict[str, int]:
    """On which file each of the loaded tables stands: a rewrite gives it another."""
    rows = connection.execute(
        "SELECT relname, pg_relation_filenode(oid) FROM pg_class WHERE relname = ANY (%s)", [sorted(LOADED)]
    ).fetchall()
    assert len(rows) == len(LOADED)
    return dict(rows)
