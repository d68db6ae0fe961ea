"""Settings of a role or a database make no command's commits less durable, nor end its work."""

import os
import re
import signal
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from sharding_app.adapters.postgres.connection import hurried, open_session
from sharding_app.adapters.postgres.deletion import count_entity
from sharding_app.adapters.postgres.further_journals import connect
from sharding_app.adapters.postgres.moving_sessions import session
from sharding_app.adapters.postgres.subjects import Subjects
from sharding_app.adapters.postgres.transfer import Transfer
from sharding_app.embedded import Servers
from tests.support.scratch import make_tables, scratch_database
from tests.support.slack import SLACK

SOON_SECONDS = 0.5 * SLACK


@pytest.fixture
def lax(servers: Servers) -> Iterator[dict[str, Any]]:
    """A database whose sessions wait for no standby."""
    with scratch_database(servers.database_url) as params:
        make_tables(params)
        allow(params, "local")
        yield params


def allow(params: dict[str, Any], value: str) -> None:
    with psycopg.connect(**params, autocommit=True) as admin:
        admin.execute(f"ALTER DATABASE {params['dbname']} SET synchronous_commit = {value}".encode())


def shown(connection: psycopg.Connection[tuple[Any, ...]], name: str = "synchronous_commit") -> str:
    ((found,),) = connection.execute(b"SELECT current_setting(%s)", [name]).fetchall()
    return str(found)


def test_each_command_waits_for_a_standby(lax: dict[str, Any]) -> None:
    with psycopg.connect(**lax) as plain:
        assert shown(plain) == "local"
    with (
        Subjects(lax) as subjects,
        Transfer(lax) as transfer,
        connect("b", {"b": lax}, "deletion") as further,
        session("", lax, {}) as moving,
    ):
        found = [subjects._connection, transfer._connection, further, moving]
        assert [shown(each) for each in found] == ["on"] * 4
    assert not count_entity(lax, "shop.Cart", "a").events, "a session that only reads is opened too"


@pytest.mark.parametrize(("value", "then"), [("off", "on"), ("remote_write", "on"), ("remote_apply",) * 2])
def test_a_stricter_setting_stays(lax: dict[str, Any], value: str, then: str) -> None:
    allow(lax, value)
    with open_session(lax, "test") as command:
        assert shown(command) == then


def test_a_statement_over_a_whole_journal_has_its_time(lax: dict[str, Any]) -> None:
    hostile = {"statement_timeout": "1ms", "idle_in_transaction_session_timeout": "1ms", "jit": "on"}
    with psycopg.connect(**lax, autocommit=True) as admin:
        for name, value in hostile.items():
            admin.execute(f"ALTER DATABASE {lax['dbname']} SET {name} = '{value}'".encode())
    options = "-c statement_timeout=1ms"  # as in DATABASES, for the site's requests
    with open_session({**lax, "options": options}, "test") as command:
        found = {name: shown(command, name) for name in hostile}
    assert found == {"statement_timeout": "0", "idle_in_transaction_session_timeout": "0", "jit": "off"}


@pytest.mark.parametrize("given", ["", "-c statement_timeout=1ms -c jit=on"])
def test_a_statement_that_a_page_waits_for_ends(lax: dict[str, Any], given: str) -> None:
    soon = hurried({**lax, "options": given}, SOON_SECONDS, 3)
    with open_session(soon, "test") as command:
        limit = command.execute(b"SELECT setting FROM pg_settings WHERE name = 'statement_timeout'")
        assert limit.fetchone() == (f"{SOON_SECONDS * 1000:.0f}",)
        with pytest.raises(psycopg.errors.QueryCanceled):
            command.execute(b"SELECT pg_sleep(60)")


def test_a_page_gives_up_a_session_that_falls_silent(lax: dict[str, Any]) -> None:
    with open_session(hurried(lax, SOON_SECONDS, 2), "test") as command:
        pid = command.info.backend_pid
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(
                psycopg.OperationalError, match=f"no answer within {re.escape(f'{SOON_SECONDS + 2:g}')} s"
            ):
                command.execute(b"SELECT 1")
        finally:
            os.kill(pid, signal.SIGCONT)


def test_a_transaction_over_a_whole_journal_has_its_time(lax: dict[str, Any]) -> None:
    with psycopg.connect(**lax, autocommit=True) as admin:
        if admin.info.server_version < 170000:
            pytest.skip("This server has no such limit.")
        admin.execute(f"ALTER DATABASE {lax['dbname']} SET transaction_timeout = '20s'".encode())
    with open_session(lax, "test") as command:
        assert shown(command, "transaction_timeout") == "0"
