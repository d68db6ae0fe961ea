"""What can be known of a server before anything relies on it."""

import asyncio
import re
import struct
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from sharding_app.adapters.postgres.probe import looks_pooled, server_facts, way_to
from sharding_app.adapters.postgres.store import PostgresStore
from sharding_app.embedded import OwnPostgres
from tests.integration.adapters.postgres.silent_proxy import proxy_to
from tests.integration.adapters.postgres.transaction_pooler import transaction_pooler
from tests.support.given import CART, with_type

pytestmark = pytest.mark.asyncio


async def test_a_servers_settings_are_found(params: dict[str, Any]) -> None:
    facts = await asyncio.to_thread(server_facts, params)
    with psycopg.connect(**params) as connection:
        assert facts.version_number == connection.info.server_version
        names = "fsync", "full_page_writes"
        said = [connection.execute(f"SHOW {name}").fetchone() for name in names]
    assert re.match(r"\d+", facts.version)
    assert [(("off", "on")[found],) for found in (facts.fsync, facts.full_page_writes)] == said
    assert (facts.autovacuum, facts.standby) == (True, False)
    assert facts.synchronous_commit == "on"
    assert facts.encoding == "UTF8"
    assert facts.max_connections > facts.reserved_connections
    assert facts.connections >= 1


async def test_a_careless_server_is_seen(own_postgres: OwnPostgres) -> None:
    params: dict[str, Any] = conninfo_to_dict(own_postgres.url)
    with psycopg.connect(**params, autocommit=True) as admin:
        admin.execute("ALTER SYSTEM SET autovacuum = off")
        admin.execute("ALTER ROLE CURRENT_USER SET synchronous_commit = off")
    own_postgres.stop()
    own_postgres.start()
    facts = await asyncio.to_thread(server_facts, params)
    assert (facts.autovacuum, facts.synchronous_commit) == (False, "off")


async def test_no_server_raises() -> None:
    with pytest.raises(psycopg.OperationalError):
        await asyncio.to_thread(server_facts, {"host": "127.0.0.1", "port": 1, "dbname": "none"})


async def test_a_direct_way_is_direct(params: dict[str, Any]) -> None:
    assert await asyncio.to_thread(way_to, params) == "direct"


async def test_a_plain_proxy_is_direct_too(params: dict[str, Any]) -> None:
    async with proxy_to(params) as proxy:
        assert await asyncio.to_thread(way_to, proxy.params) == "direct"


async def test_invented_cancel_keys_give_a_session_pooler_away(params: dict[str, Any]) -> None:
    def invent(data: bytes) -> bytes:
        """Write another pid into BackendKeyData, as a pooler does."""
        found = re.search(rb"K\0\0\0[\x0c-\x30]", data)
        if found is None:
            return data
        return data[: found.end()] + struct.pack("!i", 999_999) + data[found.end() + 4 :]

    async with proxy_to(params, invent) as proxy:
        assert await asyncio.to_thread(way_to, proxy.params) == "session pooler"


async def test_a_transaction_pooler_is_found_out(params: dict[str, Any]) -> None:
    async with transaction_pooler(params) as pooled:
        assert await asyncio.to_thread(way_to, pooled) == "transaction pooler"


@pytest.mark.parametrize(("port", "expected"), [(6432, True), ("6432", True), (5432, False), (None, False)])
async def test_the_poolers_usual_port_is_a_hint(port: object, expected: bool) -> None:
    assert looks_pooled({} if port is None else {"port": port}) is expected


async def test_a_process_that_only_asks_may_ask_through_a_transaction_pooler(params: dict[str, Any]) -> None:
    direct = PostgresStore(params)
    await with_type(direct)
    async with transaction_pooler(params) as pooled:
        stores = [PostgresStore(pooled, owner=str(number), pooled=True) for number in range(4)]
        for _ in range(8):
            answers = await asyncio.gather(*(store.types() for store in stores))
            assert answers == [[CART]] * 4
        assert {await store.cluster_id() for store in stores} == {await direct.cluster_id()}
        assert stores[0].backends == ()
        for store in stores:
            await store.close()
    await direct.close()
