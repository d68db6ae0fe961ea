"""Ways to PostgreSQL as people have them: several hosts of which one is the primary, and PgBouncer
before callers.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from sharding_app.adapters.postgres.conninfo import from_django_settings
from sharding_app.adapters.postgres.journal import PostgresJournal
from sharding_app.adapters.postgres.lifeline_session import PostgresLifelineSession
from sharding_app.adapters.postgres.store import PostgresStore
from sharding_app.embedded.ports import free_port
from tests.integration.adapters.postgres.writers import connect, give_homes
from tests.support.given import event_row, member, until

PGBOUNCER = shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"


@pytest.mark.asyncio
async def test_of_several_hosts_the_one_that_can_be_written_to_is_found(params: dict[str, Any]) -> None:
    """libpq's own way of a failover: all hosts in DATABASES, and the attribute that tells the
    primary.
    """
    several = from_django_settings(
        {
            "NAME": params["dbname"], "USER": params["user"], "PASSWORD": params.get("password", ""),
            "HOST": f"127.0.0.1,{params['host']}", "PORT": f"1,{params['port']}",
            "OPTIONS": {"target_session_attrs": "read-write"},
        }
    )  # fmt: skip
    store, journal = PostgresStore(several, owner="me"), PostgresJournal(several, owner="me")
    session = PostgresLifelineSession(several, cluster_id="c", owner="me", ttl_seconds=60)
    async with await connect(params) as admin:
        await give_homes(admin, 1)
    await store.join(member("me"), (1, 2))
    await journal.append([event_row(1, "a", 1)])
    await session.open()
    assert await session.elect("me") == 1
    await store.close()
    await journal.close()
    await session.close()


@pytest.fixture
def bouncer(params: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The parameters that lead through PgBouncer, which lends a connection for each transaction."""
    if not os.access(PGBOUNCER, os.X_OK):
        pytest.skip("PgBouncer is not installed")
    port = free_port()
    there = " ".join(
        f"{name}={params[name]}" for name in ("host", "port", "user", "password") if params.get(name)
    )
    place = Path(tempfile.mkdtemp())
    place.chmod(0o755)  # it does not run as root, and reads this as another user
    (place / "pgbouncer.ini").write_text(
        f"[databases]\n{params['dbname']} = {there}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n"
        "pool_mode = transaction\ndefault_pool_size = 2\nmax_client_conn = 20\n"
    )
    command = [PGBOUNCER]
    if os.geteuid() == 0:
        command += ["-u", "nobody"]
    process = subprocess.Popen([*command, str(place / "pgbouncer.ini")], stderr=subprocess.DEVNULL)
    yield {**params, "port": port, "password": "", "sslmode": "disable", "gssencmode": "disable"}
    process.kill()
    process.wait()
    shutil.rmtree(place)


@pytest.mark.asyncio
async def test_callers_go_through_pgbouncer(bouncer: dict[str, Any], params: dict[str, Any]) -> None:
    node = PostgresStore(params, owner="me")
    await node.join(member("me"), (1, 2))
    callers = [PostgresStore(bouncer, pooled=True) for _ in range(5)]

    async def reachable() -> bool:
        try:
            async with await connect({**bouncer, "prepare_threshold": None}):
                return True
        except psycopg.OperationalError:
            return False

    await until(reachable)
    made = await node.cluster_id()
    for _ in range(3):
        assert {await caller.cluster_id() for caller in callers} == {made}
        for caller in callers:
            assert [each.incarnation for each in (await caller.members())[1]] == ["me"]
            assert (await caller.coordinator()).term == 0
            assert await caller.homes("shop.Cart", [1, 2]) == []
    for store in (node, *callers):
        await store.close()
