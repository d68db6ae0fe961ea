"""The sessions that the doctor counts: all that take up a connection, whatever its role may see."""

from __future__ import annotations

import secrets

import psycopg

from sharding_app.adapters.postgres.sql import QUERIES
from sharding_app.embedded import Servers
from tests.support.scratch import make_tables, scratch_database


def test_sessions_of_other_roles_count(servers: Servers) -> None:
    role, password = f"looks_{secrets.token_hex(4)}", secrets.token_hex(8)
    with scratch_database(servers.database_url) as params:
        make_tables(params)
        with psycopg.connect(**params, autocommit=True) as admin:
            admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{password}'".encode())
            try:
                with psycopg.connect(**{**params, "user": role, "password": password}) as looking:
                    found = looking.execute(QUERIES["doctor_sessions"]).fetchall()
                assert admin.info.backend_pid in [pid for pid, *_ in found]
                of_ours = admin.execute(
                    b"SELECT pid FROM pg_stat_activity WHERE backend_type <> 'client backend'"
                ).fetchall()
                assert not {pid for (pid,) in of_ours} & {pid for pid, *_ in found}, "no server process"
            finally:
                admin.execute(f"DROP ROLE {role}".encode())
