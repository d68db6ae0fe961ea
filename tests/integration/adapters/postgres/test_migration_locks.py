"""Our own migrations take no long lock on a loaded journal: read in their SQL. The rule itself is
tried beside an append.
"""

import ast
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from sharding_app.embedded import Servers
from tests.integration.adapters.postgres.migration_rules import LOADED, broken
from tests.support.live import until
from tests.support.scratch import FILES, make_tables, scratch_database
from tests.support.slack import SLACK

MIGRATIONS = Path(__file__).resolve().parents[4] / "sharding_app" / "migrations"
BRIEF = """
CREATE TABLE @schema@.sharding_new (a integer);
CREATE INDEX ON @schema@.sharding_new (a);
ALTER TABLE @schema@.sharding_node ADD COLUMN z jsonb NOT NULL DEFAULT '[1]';
ALTER TABLE @schema@.sharding_event SET (autovacuum_vacuum_scale_factor = 0.01);
CREATE FUNCTION @schema@.sharding_new_v1() RETURNS void LANGUAGE plpgsql AS $f$ BEGIN UPDATE sharding_event SET seq = 1; END $f$;
"""
"""They pass beside an append that is under way."""
MOMENT = """
ALTER TABLE @schema@.sharding_event ADD COLUMN x text COLLATE "C";
ALTER TABLE @schema@.sharding_event ADD COLUMN y boolean NOT NULL DEFAULT false;
ALTER TABLE @schema@.sharding_event ADD CONSTRAINT c CHECK (seq > 0) NOT VALID;
ALTER TABLE @schema@.sharding_event VALIDATE CONSTRAINT c;
"""
"""They need the table for a moment between two appends."""
INDEX = "CREATE INDEX CONCURRENTLY late ON @schema@.sharding_event (at);"
"""It is one statement, which waits for the transactions that were there before it."""
APPEND = (
    "INSERT INTO sharding_event (type_id, entity, seq, shard, epoch, name, version, payload)"
    " VALUES (1, 'a', %s, 0, 1, 'E', 1, '{}')"
)
WAITS = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    " AND query LIKE '%%CREATE INDEX CONCURRENTLY%%' AND wait_event_type = 'Lock'"
)


def test_every_file_is_known() -> None:
    there = {path.stem for path in (MIGRATIONS / "sql").glob("*.sql")}
    assert {name for name in there if not name.endswith("_drop")} == {*FILES, "0001_partitioned"}


def faults(folder: Path) -> list[str]:
    """Say what the files after the first migration's may not do."""
    later = [path for path in sorted(folder.glob("*.sql")) if not path.stem.startswith("0001_")]
    return [
        f"{path.name}: {fault}"
        for path in later
        if not path.stem.endswith("_drop")
        for fault in broken(path.read_text())
    ]


def test_no_file_after_the_first_rewrites_or_locks_what_grows() -> None:
    assert faults(MIGRATIONS / "sql") == []


def test_a_later_file_that_does_is_found(tmp_path: Path) -> None:
    for name in ("0001_first", "0002_late", "0002_drop"):
        (tmp_path / f"{name}.sql").write_text("CREATE INDEX late ON @schema@.sharding_event (at);")
    (fault,) = faults(tmp_path)
    assert fault.startswith("0002_late.sql: an index")


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
    assert broken(BRIEF + MOMENT + INDEX) == []


def made(sql: str) -> bytes:
    return sql.replace("@schema@", "public").encode()


def test_what_is_allowed_passes_beside_an_append_and_rewrites_nothing(servers: Servers) -> None:
    with scratch_database(servers.database_url) as params:
        make_tables(params)
        open_shard(params)
        with psycopg.connect(**params) as writer, psycopg.connect(**params, autocommit=True) as migrating:
            writer.execute(APPEND, [1])
            before = files(migrating)
            migrating.execute("SET lock_timeout = '500ms'")
            migrating.execute(made(BRIEF))
            writer.commit()
            migrating.execute(made(MOMENT))
            assert files(migrating) == before
            row = migrating.execute("SELECT count(*) FROM sharding_event").fetchone()
            assert row == (1,)


def test_an_index_is_built_beside_appends_that_come_and_go(servers: Servers) -> None:
    """It waits for those that are under way when it begins, and holds up none."""
    with scratch_database(servers.database_url) as params:
        make_tables(params)
        open_shard(params)
        with psycopg.connect(**params) as writer, ThreadPoolExecutor(1) as pool:
            writer.execute(APPEND, [1])
            building = pool.submit(run_alone, params, made(INDEX))
            with psycopg.connect(**params, autocommit=True) as other:
                until(lambda: other.execute(WAITS).fetchone() == (1,), 10, "the index waits for the append")
                other.execute("SET lock_timeout = '500ms'")
                other.execute(APPEND, [2])
            assert not building.done()
            writer.commit()
            building.result(30 * SLACK)
        with psycopg.connect(**params) as admin:
            row = admin.execute("SELECT count(*) FROM pg_index WHERE NOT indisvalid").fetchone()
            assert row == (0,)


def open_shard(params: dict[str, Any]) -> None:
    with psycopg.connect(**params, autocommit=True) as admin:
        admin.execute(
            "INSERT INTO sharding_shard (type_id, shard, epoch, home, step) VALUES (1, 0, 1, 'me', 'home')"
        )


def run_alone(params: dict[str, Any], statement: bytes) -> None:
    with psycopg.connect(**params, autocommit=True) as connection:
        connection.execute(statement)


def files(connection: psycopg.Connection[Any]) -> dict[str, int]:
    """On which file each of the loaded tables stands: a rewrite gives it another."""
    rows = connection.execute(
        "SELECT relname, pg_relation_filenode(oid) FROM pg_class WHERE relname = ANY (%s)", [sorted(LOADED)]
    ).fetchall()
    assert len(rows) == len(LOADED)
    return dict(rows)
