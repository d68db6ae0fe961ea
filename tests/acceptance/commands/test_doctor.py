"""`sharding_doctor` on real servers and nodes: what can be provoked there is found, and nothing
else.
"""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
import redis
from psycopg.conninfo import conninfo_to_dict

from tests.acceptance.commands.terminal import on_terminal
from tests.support.live import Live, look_again, until

BUY = "from project.shop.entities import Cart\nfor n in range(20): Cart.ref(f'doctor-{n}').sync.add('book')"
TYPE = """
INSERT INTO sharding_type (name, kind, number_of_shards, extractor, hash_version, role, store_mode)
VALUES ('shop.Cart', 'event sourced', 10, '', 'crc32-1', '', 'postgres')
"""
LATE = {"sharding.D167", "sharding.D179"}
"""What is found where the only node does not answer within a second."""
SOUND: dict[str, Any] = {"TEST_SHARDING": json.dumps({"KEYS": ["a key of sixteen bytes and more"]})}


def doctor(live: Live, **more: Any) -> tuple[int, dict[str, dict[str, str]]]:
    answer = live.manage("sharding_doctor", "--json", **more)
    found = json.loads(answer.stdout)
    assert found["healthy"] == (answer.returncode == 0)
    problems = {each["id"].removeprefix("sharding."): each for each in found["findings"]}
    # The tests' own role is a superuser, and everybody may connect.
    assert {problems.pop(each)["severity"] for each in ("D129", "D130") if each in problems} <= {"note"}
    return answer.returncode, problems


def finds(live: Live, *wanted: str, **more: Any) -> dict[str, dict[str, str]]:
    """Wait until it finds that, and nothing else; return it. On a busy machine a node may be too
    late for one look, and may lack its lease for a moment.
    """
    last: tuple[int, dict[str, dict[str, str]]] = (0, {})

    def these_alone() -> bool:
        nonlocal last
        last = doctor(live, **more)
        return (last[0], set(last[1])) == (int(bool(wanted)), set(wanted))

    try:
        until(these_alone, 30, f"it finds {wanted} alone")
    except AssertionError as error:
        raise AssertionError(f"{error}; it found {last}") from None
    return last[1]


def run(live: Live, query: str) -> None:
    params: dict[str, Any] = conninfo_to_dict(live.database_url)
    with psycopg.connect(**params, autocommit=True) as connection:
        connection.execute(query.encode())


@pytest.mark.slow
def test_a_sound_cluster_and_what_becomes_of_it(live_tables: Live) -> None:
    live = live_tables
    with live.program("sharding_node", "--name", "one", **SOUND) as node:
        node.wait_line("^node one is up$")
        bought = live.manage("shell", "-v0", "-c", BUY, **SOUND)
        assert bought.returncode == 0, bought.stderr
        finds(live, **SOUND)
        answer = look_again(live.manage, "sharding_doctor", **SOUND)
        assert answer.returncode == 0, answer.stdout
        assert set(re.findall(r"D\d{3}", answer.stdout)) == {"D129", "D130"}, "notes on the tests' own role"
        assert "sampling the journal of shop.Cart\n" in answer.stderr
        assert "\x1b" not in answer.stdout + answer.stderr

        # Rows come that the code does not know, and that it cannot read; both are named, their
        # content is not.
        run(live, "UPDATE sharding_event SET name = 'Gone' WHERE entity = 'doctor-3'")
        run(
            live,
            """UPDATE sharding_event SET payload = '{"sku": "book", "quantity": "secret"}' WHERE entity = 'doctor-4'""",
        )
        # A copy of the database is used on the same Redis: its nodes listen under our id.
        params: dict[str, Any] = conninfo_to_dict(live.database_url)
        with psycopg.connect(**params) as connection:
            (cluster,) = connection.execute("SELECT cluster_id FROM sharding_cluster").fetchone() or ("",)
        with redis.Redis.from_url(live.redis_url) as copy, copy.pubsub() as stranger:
            stranger.subscribe(f"sharding.{cluster}.n-stranger")
            # The project here has other settings than the cluster, and another key.
            other = json.dumps({"KEYS": ["another key that is long enough"], "NUMBER_OF_SHARDS": 7})
            found = finds(live, "D192", "D145", **SOUND)
            assert "n-stranger" in found["D145"]["what"]
            shown = live.manage("sharding_doctor", **SOUND).stdout
        shown = " ".join(shown.split())
        assert "'doctor-3' #1" in shown
        assert "has an unknown event 'Gone'" in shown
        assert "'doctor-4' #1" in shown
        assert "Expected `int`, got `str`" in shown, shown
        assert "secret" not in shown
        code, found = doctor(live, TEST_SHARDING=other)
        assert code == 1
        assert "number_of_shards is 7 here and 1000 in the cluster" in found["D170"]["what"]
        assert {"D167", "D192"} <= set(found), "it hears no node that has another key"


@pytest.mark.slow
def test_dead_homes_hanging_hand_offs_and_the_server(live_tables: Live) -> None:
    live = live_tables
    with live.program("sharding_node", "--name", "one", **SOUND) as node:
        node.wait_line("^node one is up$")
        assert live.manage("shell", "-v0", "-c", BUY, **SOUND).returncode == 0
        assert node.stop() == 0
    code, found = doctor(live, **SOUND)
    assert (code, set(found)) == (1, {"D161"})
    run(live, "ALTER TABLE sharding_shard SET (autovacuum_enabled = false)")
    try:
        code, found = doctor(live, **SOUND)
    finally:
        run(live, "ALTER TABLE sharding_shard RESET (autovacuum_enabled)")
    assert (code, set(found)) == (1, {"D161", "D124"})
    # A row of a node that is not there, one of its shards on the way for long, another at a node
    # without a row.
    run(
        live,
        "INSERT INTO sharding_node (incarnation, name, host, pid, age, state, types, lock_key_1, lock_key_2) VALUES"
        " ('n-gone', 'gone', 'h', 1, 99, 'up', '[\"shop.Cart\"]', 1, 2)",
    )
    run(
        live,
        "UPDATE sharding_shard SET home = CASE WHEN shard % 2 = 0 THEN 'n-gone' ELSE 'n-left' END,"
        " step = CASE WHEN shard % 2 = 0 THEN 'handoff' ELSE 'home' END, updated_at = now() - interval '1 hour'",
    )
    code, found = doctor(live, **SOUND)
    assert (code, set(found)) == (1, {"D162", "D165", "D167", "D171", "D179", "D181", "D183"})


def test_without_servers_or_tables_it_says_so(live_servers: Live) -> None:
    with live_servers.empty_database() as empty:
        code, found = doctor(empty, **SOUND)
        assert (code, set(found)) == (1, {"D111"})
    away = Live("postgresql://u:p@127.0.0.1:1/x", live_servers.redis_url)
    code, found = doctor(away, **SOUND)
    assert (code, set(found)) == (2, {"D101"})
    assert "PostgreSQL at 127.0.0.1:1 cannot be used" in found["D101"]["what"]


def test_a_table_that_a_session_has_locked_whole_blinds_it_to_little(live_tables: Live) -> None:
    run(live_tables, TYPE)
    params: dict[str, Any] = conninfo_to_dict(live_tables.database_url)
    with psycopg.connect(**params) as session:
        session.execute("LOCK TABLE sharding_event IN ACCESS EXCLUSIVE MODE")
        code, found = doctor(live_tables, **SOUND)
    assert (code, set(found)) == (1, {"D161", "D170", "D189"})
    assert "shop.Cart was not sampled" in found["D189"]["what"]


def test_a_right_that_is_missing_is_no_server_that_is_away(live_servers: Live) -> None:
    with live_servers.empty_database() as live:
        assert live.manage("migrate", "-v0").returncode == 0
        run(live, "CREATE ROLE without_rights LOGIN PASSWORD 'p'")
        parts = urlsplit(live.database_url)
        asked = parts._replace(netloc=f"without_rights:p@{parts.hostname}:{parts.port}").geturl()
        code, found = doctor(Live(asked, live.redis_url), **SOUND)
        run(live, "DROP ROLE without_rights")
    assert code == 1
    assert "refuses a statement to the role" in found["D101"]["what"]
    assert "which rights roles need" in found["D101"]["fix"]


def test_without_redis_it_still_looks_at_the_rest(live_tables: Live) -> None:
    without = Live(live_tables.database_url, "redis://127.0.0.1:1")
    links = {
        "TEST_SHARDING": json.dumps({"LINKS": "channel_layer", "KEYS": ["a key of sixteen bytes and more"]})
    }
    code, found = doctor(without, **links)
    assert (code, set(found)) == (2, {"D102", "D161"})


def test_a_database_that_fails_behind_a_redis_that_is_away_is_told_too(live_servers: Live) -> None:
    with live_servers.empty_database() as live:
        made = live.manage("migrate", "-v0")
        assert made.returncode == 0, made.stderr
        run(live, TYPE)
        run(live, "ALTER TABLE sharding_remembered RENAME TO lost")
        without = Live(live.database_url, "redis://127.0.0.1:1")
        code, found = doctor(without, TEST_SHARDING=json.dumps({"LINKS": "channel_layer"}))
        assert code == 2
        assert {"D101", "D102"} <= set(found)
        assert "sharding_remembered" in found["D101"]["what"]


@pytest.mark.slow
def test_beside_direct_links_a_redis_that_is_away_is_no_outage(live_tables: Live) -> None:
    without = Live(live_tables.database_url, "redis://127.0.0.1:1")
    with without.program("sharding_node", "--name", "one", **SOUND) as node:
        node.wait_line("^node one is up$")
        bought = without.manage("shell", "-v0", "-c", BUY, **SOUND)
        assert bought.returncode == 0, bought.stderr
        status: dict[str, Any] = {}

        def says_so() -> bool:
            answer = without.manage("sharding_status", "--json", **SOUND)
            status.update(json.loads(answer.stdout))
            assert status["healthy"] == (answer.returncode == 0)
            # On a busy machine it may be too late for one look. Nothing else may be wrong.
            assert {each["id"] for each in status["problems"]} <= LATE, answer.stdout
            return status["healthy"] and bool(status["notes"])

        until(says_so, 60, "the node has noticed")
        assert status["healthy"]
        (note,) = status["notes"]
        assert note["id"] == "sharding.D149"
        assert note["what"] == "The channel layer carries no messages for one. Direct links go on."
        found = finds(without, "D149", **SOUND)
        assert re.search(r"for this process \(.+\), one\. Direct links go on", found["D149"]["what"])


def test_watching_gives_a_line_each_time(live_tables: Live) -> None:
    with live_tables.program("sharding_doctor", "--watch", "0.1", **SOUND) as watch:
        until(lambda: len(watch.lines) >= 2, 30, "two lines")
        line = r"^\S+Z unhealthy findings=1 \| sharding.D161 No node is running"
        assert all(re.match(line, each) for each in watch.lines[:2])


def test_on_a_terminal_progress_is_redrawn_and_no_color_is_obeyed(live_tables: Live) -> None:
    def shown(**more: str) -> bytes:
        with on_terminal(live_tables, "sharding_doctor", **SOUND, **more) as terminal:
            terminal.read_until(lambda seen: b"found" in seen.split(b"\n")[-1] or b"problem found" in seen)
            assert terminal.exit_code() == 1
        return terminal.seen

    coloured = shown()
    assert b"\r\x1b[Kreading the settings ..." in coloured
    assert re.search(rb"\x1b\[[0-9;]*31[0-9;]*m", coloured), "errors are red"
    assert not re.search(rb"\x1b\[[0-9;]*m", shown(NO_COLOR="1"))
