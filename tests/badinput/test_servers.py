"""Servers that are away, and tables that are not there: one sentence, an exit code, and on it goes
when they are back.
"""

from __future__ import annotations

import json
from urllib.parse import urlsplit, urlunsplit

import pytest

from sharding_app.embedded import OwnPostgres, OwnRedis
from sharding_app.embedded.ports import free_port
from tests.support.live import Live
from tests.support.slack import SLACK

LAYER_ALONE = '{"LINKS": "channel_layer"}'
# The client looks for its tables once a second: the call has to outlast several of these looks.
CART = (
    f"from project.shop.entities import Cart; print(Cart.ref('alice', timeout={6 * SLACK}).sync.add('book'))"
)


def elsewhere(url: str) -> str:
    """The same server at a port where no process listens."""
    parts = urlsplit(url)
    before, _, _ = parts.netloc.rpartition(":")
    return urlunsplit(parts._replace(netloc=f"{before}:{free_port()}"))


@pytest.mark.parametrize(
    "command", [["sharding_status"], ["runcluster", "--noreload"]], ids=lambda each: each[0]
)
def test_commands_name_a_postgres_out_of_reach(live_tables: Live, command: list[str]) -> None:
    url = elsewhere(live_tables.database_url)
    answer = live_tables.manage(*command, DATABASE_URL=url)
    assert answer.returncode == 2
    (sentence,) = answer.stderr.splitlines()
    assert f"PostgreSQL at 127.0.0.1:{urlsplit(url).port} cannot be used: Connection refused." in sentence
    assert "Is it running there, and is DATABASES['default'] right?" in sentence


@pytest.mark.parametrize(
    "command", [["sharding_status"], ["runcluster", "--noreload"]], ids=lambda each: each[0]
)
def test_commands_name_a_redis_out_of_reach(live_tables: Live, command: list[str]) -> None:
    answer = live_tables.manage(
        *command, REDIS_URL=elsewhere(live_tables.redis_url), TEST_SHARDING=LAYER_ALONE
    )
    assert answer.returncode == 2
    (sentence,) = answer.stderr.splitlines()
    assert "The channel layer carries no messages: channel layer 'sharding':" in sentence
    assert "Is Redis running there, and is CHANNEL_LAYERS right?" in sentence


def test_a_wrong_password_is_said_as_it_is(live_tables: Live) -> None:
    parts = urlsplit(live_tables.database_url)
    url = urlunsplit(parts._replace(netloc=parts.netloc.replace(f":{parts.password}@", ":wrong@")))
    answer = live_tables.manage("sharding_status", DATABASE_URL=url)
    assert answer.returncode == 2
    assert "password authentication failed" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_scripts_get_the_sentence_as_json(live_tables: Live) -> None:
    answer = live_tables.manage("sharding_status", "--json", DATABASE_URL=elsewhere(live_tables.database_url))
    found = json.loads(answer.stdout)
    assert found["healthy"] is False
    assert "cannot be used" in found["error"]
    assert answer.returncode == 2


def test_without_tables_everybody_is_sent_to_migrate(live_servers: Live) -> None:
    with live_servers.empty_database() as live:
        status = live.manage("sharding_status")
        assert status.returncode == 1
        assert "The cluster's tables are missing or old: run `manage.py migrate`" in status.stderr

        call = live.manage("shell", "-v0", "-c", CART)
        assert (
            "Unavailable: this process is not connected to the cluster: the cluster's tables" in call.stderr
        )
        assert "run `manage.py migrate`" in call.stderr

        with live.program("sharding_node", "--name", "early") as node:
            node.wait_line(
                "cannot join yet, tries again: the cluster's tables are missing or old: run `manage.py migrate`"
            )
            assert live.manage("migrate", "-v0").returncode == 0
            node.wait_line("^node early is up$")
            assert len([line for line in node.lines if "cannot join yet" in line]) == 1
            assert live.manage("shell", "-v0", "-c", CART).stdout == "1\n"


@pytest.mark.parametrize("server", ["postgres", "redis"])
def test_a_node_that_comes_before_its_server_waits_for_it(
    live_tables: Live, own_postgres: OwnPostgres, own_redis: OwnRedis, server: str
) -> None:
    live = Live(own_postgres.url, own_redis.url)
    assert live.manage("migrate", "-v0").returncode == 0
    own = own_postgres if server == "postgres" else own_redis
    own.stop()
    with live.program("sharding_node", "--name", "patient", TEST_SHARDING=LAYER_ALONE) as node:
        node.wait_line("cannot join yet, tries again: ")
        own.start()
        node.wait_line("^node patient is up$")
        assert node.stop() == 0


@pytest.mark.parametrize("server", ["DATABASE_URL", "REDIS_URL"])
def test_a_node_that_waits_for_a_server_can_be_stopped(live_tables: Live, server: str) -> None:
    away = elsewhere(live_tables.environment()[server])
    with live_tables.program(
        "sharding_node", "--name", "waiting", **{server: away}, TEST_SHARDING=LAYER_ALONE
    ) as node:
        node.wait_line("cannot join yet, tries again: ")
        assert node.stop() == 0


@pytest.mark.parametrize("server", ["postgres", "redis"])
def test_a_call_says_which_server_is_away(live_cluster: Live, server: str) -> None:
    """A client that never got in; nothing is waited for longer than the caller said."""
    if server == "postgres":
        answer = live_cluster.manage(
            "shell", "-v0", "-c", CART, DATABASE_URL=elsewhere(live_cluster.database_url)
        )
        assert "Connection refused" in answer.stderr
    else:
        away = elsewhere(live_cluster.redis_url)
        answer = live_cluster.manage("shell", "-v0", "-c", CART, REDIS_URL=away, TEST_SHARDING=LAYER_ALONE)
        assert "channel layer 'sharding': ConnectionError" in answer.stderr
    assert answer.returncode == 1
    assert "Unavailable: this process is not connected to the cluster: " in answer.stderr
