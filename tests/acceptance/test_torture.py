"""`sharding_torture` on servers of its own: it breaks, judges, reports, cleans up, and says so
where it may not.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest

from sharding_app.torture.history import Call
from sharding_app.torture.linear import check_register
from sharding_app.torture.porcupine import judge
from tests.support.live import Live, until
from tests.unit.torture.test_checkers import GOOD, call

pytestmark = pytest.mark.acceptance

LEFT = """
SELECT (SELECT count(*) FROM sharding_event) + (SELECT count(*) FROM sharding_type)
     + (SELECT count(*) FROM sharding_node) + (SELECT count(*) FROM sharding_shard)
     + (SELECT count(*) FROM pg_class WHERE relname LIKE 'sharding_torture%')
     + (SELECT count(*) FROM pg_proc WHERE proname LIKE 'sharding_torture%')
"""
SESSIONS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND starts_with(application_name, 'sharding/')
"""
PORCUPINE = os.environ.get("PORCUPINE", "")
"""The program that `tools/porcupine` builds; Go's packages cannot be had everywhere."""


def number(live: Live, query: LiteralString) -> int:
    with psycopg.connect(live.database_url) as connection:
        row = connection.execute(query).fetchone()
    assert row is not None
    return int(row[0])


def left(live: Live) -> int:
    return number(live, LEFT)


def sessions(live: Live) -> int:
    """Return how many sessions the nodes and callers of this database have."""
    return number(live, SESSIONS)


@pytest.mark.alone
def test_it_breaks_and_judges_and_leaves_nothing_behind(live_tables: Live, tmp_path: Path) -> None:
    place = tmp_path / "kept"
    done = live_tables.manage(
        "sharding_torture", "--minutes", "0.01", "--stages", "3", "--entities", "100",
        "--faults", "kill,cut-off,sessions", "--keep", str(place), "--json", seconds=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert report == json.loads((place / "report.json").read_bytes())
    assert report["rounds"] == 1
    assert report["broken"] == ""
    assert sum(report["faults"].values()) >= 3, "a fault at least in each stage"
    assert set(report["faults"]) <= {"kill", "cut-off", "sessions"}
    assert report["outcomes"]["ok"] > 100
    assert report["calls"] == sum(report["outcomes"].values())
    assert report["handled"] >= 100
    assert left(live_tables) == 0


def test_a_broken_promise_is_told(live_tables: Live, tmp_path: Path) -> None:
    """An event that disappears behind the back of all is a lost acknowledgement."""
    with psycopg.connect(live_tables.database_url, autocommit=True) as connection:
        connection.execute(
            "CREATE FUNCTION lose() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;"
            "CREATE TRIGGER lose BEFORE INSERT ON sharding_event FOR EACH ROW WHEN (NEW.seq = 3) EXECUTE FUNCTION lose()"
        )
    try:
        done = live_tables.manage(
            "sharding_torture", "--minutes", "0.01", "--stages", "1", "--entities", "50", "--faults", "stall",
            "--keep", str(tmp_path), seconds=240,
        )  # fmt: skip
    finally:
        with psycopg.connect(live_tables.database_url, autocommit=True) as connection:
            connection.execute("DROP TRIGGER lose ON sharding_event; DROP FUNCTION lose()")
    assert done.returncode == 1
    assert "BROKEN in round 1" in done.stderr
    assert "manage.py sharding_torture --seed" in done.stderr
    assert left(live_tables) == 0


def test_a_run_after_one_that_was_killed_begins_anew(live_tables: Live, tmp_path: Path) -> None:
    """Its rows would be in the histories of the entities of the next one."""
    arguments = [
        "--minutes",
        "0.01",
        "--stages",
        "1",
        "--entities",
        "50",
        "--faults",
        "stall",
        "--seed",
        "150916",
    ]
    first = ["--keep", str(tmp_path / "first")]
    with live_tables.program("sharding_torture", *arguments, *first) as killed:
        killed.wait_line(r"round 0")
        killed.process.kill()
        killed.process.wait()
    until(lambda: sessions(live_tables) == 0, 60, "its nodes have ended with it")
    assert left(live_tables) > 0
    mixed = live_tables.manage("sharding_torture", *arguments, *first)
    assert mixed.returncode == 1
    assert "is not empty: the histories of two runs would mix" in mixed.stderr
    done = live_tables.manage("sharding_torture", *arguments, "--keep", str(tmp_path / "second"), seconds=240)
    assert done.returncode == 0, done.stderr
    assert left(live_tables) == 0


def test_one_run_at_a_time_works_on_a_database(live_tables: Live) -> None:
    """Each would remove the rows of the other, and tell of lost events. Ctrl-C leaves none."""
    arguments = ["--minutes", "10", "--entities", "50", "--faults", "stall"]
    with live_tables.program("sharding_torture", *arguments) as first:
        first.wait_line(r"round 0")
        second = live_tables.manage("sharding_torture", *arguments)
        assert second.returncode == 1
        assert "Another sharding_torture is at work on this database" in second.stderr
        assert first.stop(signal.SIGINT) == 130, first.text
        assert "Interrupted: the last round is not judged" in first.text
        assert "Traceback" not in first.text
    assert left(live_tables) == 0


def test_it_refuses_a_database_in_which_others_live(live_tables: Live) -> None:
    with psycopg.connect(live_tables.database_url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO sharding_type (name, kind, number_of_shards, extractor, hash_version, role, store_mode)"
            " VALUES ('x.Y', 'memory', 1, '', '', '', '')"
        )
    done = live_tables.manage("sharding_torture", "--minutes", "0.01")
    assert done.returncode == 1
    assert "x.Y" in done.stderr
    assert "Use another database" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--faults", "kil"], "Unknown fault 'kil'. Choose from kill, kill-coordinator"),
        (["--porcupine", "/nowhere/porcupine"], "There is no program /nowhere/porcupine"),
        (["--porcupine", __file__], "test_torture.py that may be executed"),
        (["--keep", __file__], "test_torture.py: File exists. Give a new folder"),
        (["--minutes", "0"], "must be a number greater than 0"),
    ],
)
def test_bad_arguments(live_tables: Live, arguments: list[str], text: str) -> None:
    done = live_tables.manage("sharding_torture", *arguments)
    assert done.returncode != 0
    assert text in done.stderr


BAD: list[tuple[str, list[Call]]] = [
    ("a read misses an append before it", [call("append", 1, 2, "a", "a"), call("read", 3, 4, value="")]),
    ("two answers in one place", [call("append", 1, 2, "a", "a"), call("append", 3, 4, "b", "b")]),
    ("a read goes back", [*GOOD, call("read", 12, 13, value="a")]),
]


@pytest.mark.skipif(not PORCUPINE, reason="PORCUPINE names no program: see tools/porcupine")
def test_porcupine_and_our_judge_agree(tmp_path: Path) -> None:
    program = Path(PORCUPINE)
    assert check_register(GOOD) == ""
    assert judge(program, GOOD, tmp_path).linearizable == 1
    for name, history in BAD:
        assert check_register(history), name
        assert judge(program, history, tmp_path).illegal == ["e"], name
