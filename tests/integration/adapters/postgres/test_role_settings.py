"""What a DBA has set on the role or the database does not reach what our own connections rely
upon.
"""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from sharding_app.adapters.postgres.connection import Connection, Line
from sharding_app.adapters.postgres.store import PostgresStore
from sharding_app.ports.store import StoreUnavailable
from tests.support.given import member

pytestmark = pytest.mark.asyncio

HOSTILE = {
    "default_transaction_isolation": "serializable",
    "default_transaction_read_only": "on",
    "default_transaction_deferrable": "on",
    "statement_timeout": "1ms",
    "lock_timeout": "1ms",
    "idle_session_timeout": "1ms",
    "idle_in_transaction_session_timeout": "1ms",
    "DateStyle": "SQL, DMY",
    "array_nulls": "off",
    "jit": "on",
    "synchronous_commit": "off",
    "search_path": "nowhere",
}
RELIED = {
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "default_transaction_deferrable": "off",
    "statement_timeout": "4s",
    "lock_timeout": "1s",
    "idle_session_timeout": "0",
    "idle_in_transaction_session_timeout": "4s",
    "DateStyle": "ISO, MDY",
    "array_nulls": "on",
    "jit": "off",
    "synchronous_commit": "on",
}


class Role:
    def __init__(self, params: dict[str, Any]) -> None:
        self._admin = params
        self.name = f"shop_{uuid4().hex[:12]}"
        self.sql(
            f"CREATE ROLE {self.name} LOGIN PASSWORD 'secret';"
            f" GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {self.name};"
            f" GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {self.name}"
        )
        self.params = {**params, "user": self.name, "password": "secret"}

    def sql(self, statement: str) -> None:
        with psycopg.connect(**self._admin, autocommit=True) as admin:
            admin.execute(statement.encode())

    def set(self, name: str, value: str) -> None:
        self.sql(f"ALTER ROLE {self.name} SET {name} = '{value}'")

    def reset(self, name: str = "ALL") -> None:
        self.sql(f"ALTER ROLE {self.name} RESET {name}")

    def drop(self) -> None:
        self.sql(f"DROP OWNED BY {self.name}; DROP ROLE {self.name}")


@pytest.fixture
def role(params: dict[str, Any]) -> Iterator[Role]:
    role = Role(params)
    yield role
    role.drop()


async def test_a_line_has_the_settings_that_we_rely_upon(role: Role) -> None:
    line = Line(role.params, purpose="test", answer_seconds=4, settings={"lock_timeout": "1s"})
    await line.open()
    await line.close()
    for name, value in HOSTILE.items():
        role.set(name, value)

    async def look(connection: Connection) -> dict[str, str]:
        cursor = await connection.execute("SELECT name, current_setting(name) FROM pg_settings")
        return dict(await cursor.fetchall())

    found = await line.run(look)
    await line.close()
    assert {name: found[name] for name in RELIED} == RELIED
    assert found["search_path"] == "public, pg_temp", "where our tables were found before"
    assert found.get("transaction_timeout", "0") == "0"


async def test_a_transaction_timeout_of_the_role_does_not_count(role: Role) -> None:
    with psycopg.connect(**role.params, autocommit=True) as look:
        if look.info.server_version < 170000:
            pytest.skip("the setting is newer")
    role.set("transaction_timeout", "5s")
    line = Line(role.params, purpose="test")
    assert await line.rows("coordinator") == []

    async def look_there(connection: Connection) -> Any:
        return await (await connection.execute("SHOW transaction_timeout")).fetchone()

    assert await line.run(look_there) == ("0",)
    await line.close()


async def test_a_store_works_under_a_hostile_role(role: Role) -> None:
    for name, value in HOSTILE.items():
        if name != "search_path":
            role.set(name, value)
    store = PostgresStore(role.params)
    assert await store.join(member("a"), (1, 2)) == 1
    assert await store.members()
    await store.close()


async def test_a_connection_that_was_opened_in_a_bad_moment_is_not_used_again(role: Role) -> None:
    role.set("search_path", "nowhere")
    store = PostgresStore(role.params)
    with pytest.raises(StoreUnavailable, match="migrate"):
        await store.coordinator()
    role.reset("search_path")
    assert (await store.coordinator()).term == 0
    await store.close()


async def test_a_connection_on_which_nothing_may_be_written_is_not_used_again(role: Role) -> None:
    """As one to a server that has become a standby."""
    line = Line(role.params, purpose="test")

    async def demote(connection: Connection) -> None:
        await connection.execute("SET default_transaction_read_only = on")

    await line.run(demote)
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        await line.rows("raise_term", {"incarnation": "a"})
    assert not line.is_open
    assert await line.rows("raise_term", {"incarnation": "a"}) == [(1,)]
    await line.close()
