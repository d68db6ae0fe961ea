"""Who we are to the server: a role that is assumed, a login that may do little, and strangers in
the same database.
"""

import asyncio
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from sharding_app.adapters.postgres.conninfo import from_django_settings
from sharding_app.adapters.postgres.deletion import erase_entity
from sharding_app.adapters.postgres.journal import PostgresJournal
from sharding_app.adapters.postgres.lifeline_session import PostgresLifelineSession
from sharding_app.adapters.postgres.sql import QUERIES
from sharding_app.adapters.postgres.store import PostgresStore
from sharding_app.ports.journal import Erasure, JournalUnavailable
from sharding_app.ports.store import StoreUnavailable
from sharding_app.protocol.liveness.locks import coordinator_key, lifeline_keys
from sharding_app.protocol.records import Backend, HomeChange
from tests.integration.adapters.postgres.writers import connect, give_homes, value
from tests.support.given import CART, event_row, member, until
from tests.support.slack import SLACK

pytestmark = pytest.mark.asyncio

CLUSTER = "cluster"


class Roles:
    """Roles of one test: the tables' owner, logins that are members of it, and a stranger that may
    only connect.
    """

    def __init__(self, params: dict[str, Any]) -> None:
        self.params = params
        self.names: list[str] = []
        self.owner = self._made("owner", "NOLOGIN")
        self.sql(
            f"GRANT USAGE ON SCHEMA public TO {self.owner};"
            f" GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {self.owner};"
            f" GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {self.owner}"
        )

    def sql(self, statement: str) -> None:
        with psycopg.connect(**self.params, autocommit=True) as admin:
            admin.execute(statement.encode())

    def login(self, options: str = "") -> str:
        name = self._made("login", f"LOGIN PASSWORD 'secret' {options}")
        self.sql(f"GRANT {self.owner} TO {name}")
        return name

    def stranger(self) -> dict[str, Any]:
        return self.as_user(self._made("stranger", "LOGIN PASSWORD 'secret'"))

    def as_user(self, user: str) -> dict[str, Any]:
        return {**self.params, "user": user, "password": "secret"}

    def alias(self, user: str, assume: str | None = None) -> dict[str, Any]:
        """As an entry of DATABASES leads to the server."""
        given = {
            "NAME": self.params["dbname"], "USER": user, "PASSWORD": "secret", "HOST": self.params["host"],
            "PORT": self.params["port"], "OPTIONS": {"assume_role": assume} if assume else {},
        }  # fmt: skip
        return from_django_settings(given)

    def drop(self) -> None:
        for name in reversed(self.names):
            self.sql(f"DROP OWNED BY {name}")
            self.sql(f"DROP ROLE {name}")

    def _made(self, kind: str, options: str) -> str:
        name = f"{kind}_{uuid4().hex[:12]}"
        self.sql(f"CREATE ROLE {name} {options}")
        self.names.append(name)
        return name


@pytest.fixture
def roles(params: dict[str, Any]) -> Iterator[Roles]:
    roles = Roles(params)
    yield roles
    with psycopg.connect(**params, autocommit=True) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE usename = ANY(%s)",
            (roles.names,),
        )
    roles.drop()


async def _held_up(params: dict[str, Any], journal: PostgresJournal) -> bool:
    """Cut an append while it waits for its shard's row; return what `settle` says of it."""
    row = event_row(1, "a", 1)
    async with await connect(params) as admin:
        await give_homes(admin, 1)
    async with await connect(params) as blocker, blocker.transaction():
        await blocker.execute("SELECT FROM sharding_shard FOR UPDATE")
        append = asyncio.create_task(journal.append([row]))
        waits = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND wait_event_type = 'Lock' AND query ~* 'sharding_event'"
        )

        async def waiting() -> bool:
            async with await connect(params) as admin:
                return bool(await value(admin, waits))

        await until(waiting)
        await journal._appends[0].close()
        with pytest.raises(JournalUnavailable):
            await append
        settled = await journal.settle([row])
    async with await connect(params) as admin:
        there = await value(admin, "SELECT count(*) FROM sharding_event")
    assert settled is bool(there)
    return settled


@pytest.mark.parametrize("options", ["", "NOINHERIT"])
async def test_an_append_in_doubt_is_settled_under_an_assumed_role(roles: Roles, options: str) -> None:
    conninfo = roles.alias(roles.login(options), assume=roles.owner)
    journal = PostgresJournal(conninfo, owner="me", answer_seconds=30, lock_timeout_seconds=60)
    backends = await journal.open()
    assert all(each.started for each in backends)
    assert not await _held_up(roles.params, journal)
    await journal.close()


@pytest.mark.parametrize("options", ["", "NOINHERIT"])
async def test_a_dead_node_is_buried_under_an_assumed_role(roles: Roles, options: str) -> None:
    """Its journal's connection is still there: it was frozen, or cut off."""
    login = roles.login(options)
    conninfo = roles.alias(login, assume=roles.owner)
    store = PostgresStore(conninfo, owner="me")
    session = PostgresLifelineSession(conninfo, cluster_id=CLUSTER, owner="me", ttl_seconds=60)
    await store.join(member("me"), lifeline_keys(CLUSTER, "me"))
    await store.join(member("frozen"), lifeline_keys(CLUSTER, "frozen"))
    await session.open()
    term = await session.elect("me")
    assert term is not None
    frozen = PostgresJournal(conninfo, owner="frozen")
    backends = await frozen.open()
    assert await store.bury(term, "frozen")

    async def ended() -> bool:
        async with await connect(roles.params) as admin:
            pids = [each.pid for each in backends]
            return not await value(admin, "SELECT count(*) FROM pg_stat_activity WHERE pid = ANY(%s)", pids)

    await until(ended)
    await store.close()
    await session.close()
    await frozen.close()


@pytest.mark.parametrize("assumed", [True, False])
async def test_a_node_of_another_login_of_the_same_owner_is_alive(roles: Roles, assumed: bool) -> None:
    """Where each process is given a login of its own that is a member of one owner."""
    logins = [roles.login("NOINHERIT" if assumed else ""), roles.login("NOINHERIT" if assumed else "")]
    mine, theirs = (roles.alias(login, assume=roles.owner if assumed else None) for login in logins)
    store, keys = PostgresStore(mine, owner="me"), lifeline_keys(CLUSTER, "them")
    await store.join(member("them"), keys)
    sessions = [
        PostgresLifelineSession(theirs, cluster_id=CLUSTER, owner="them", number=n, ttl_seconds=60)
        for n in (0, 1)
    ]
    for session, key in zip(sessions, keys, strict=True):
        await session.open()
        assert await session.lock(key)
    assert [each.locks for each in (await store.members())[1]] == [2]
    await store.close()
    for session in sessions:
        await session.close()


async def test_a_login_that_may_end_nothing_is_refused_with_the_reason(roles: Roles) -> None:
    login = roles.login()
    roles.sql("REVOKE EXECUTE ON FUNCTION pg_terminate_backend(integer, bigint) FROM PUBLIC")
    try:
        store = PostgresStore(roles.alias(login))
        with pytest.raises(StoreUnavailable, match="pg_terminate_backend"):
            await store.open()
    finally:
        roles.sql("GRANT EXECUTE ON FUNCTION pg_terminate_backend(integer, bigint) TO PUBLIC")


async def test_a_process_of_strangers_that_has_the_number_of_one_of_ours_is_not_waited_for(
    roles: Roles,
) -> None:
    """After a failover the other server has processes of its own, with the same small numbers;
    their starts are hidden.
    """
    journal = PostgresJournal(roles.alias(roles.login()), owner="me")
    await journal.open()
    async with await psycopg.AsyncConnection.connect(**roles.stranger()) as there:
        gone = Backend(there.info.backend_pid, "2020-01-01T00:00:00.000000Z")
        assert not await journal.settle_of(gone, [event_row(1, "a", 1)])
        await there.execute("SELECT 1")
    async with await connect(roles.params) as admin:
        writer = await value(admin, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'")
    assert not await journal.settle_of(Backend(writer, gone.started), [event_row(1, "a", 1)])
    await journal.close()


async def test_a_process_of_ours_whose_start_is_hidden_is_not_taken_for_gone(roles: Roles) -> None:
    """Another login's transaction that shares an append: we may not see its end, and do not say
    that it has come.
    """
    journal = PostgresJournal(roles.alias(roles.login()), owner="me", answer_seconds=1 * SLACK)
    await journal.open()
    other = {**roles.as_user(roles.login()), "application_name": "sharding/me/also"}
    async with await psycopg.AsyncConnection.connect(**other) as there:
        pid = there.info.backend_pid
        with pytest.raises(JournalUnavailable):
            await journal.settle_of(Backend(pid, "2020-01-01T00:00:00.000000Z"), [event_row(1, "a", 1)])
        await there.execute("SELECT 1")
    await journal.close()


# -- strangers -------------------------------------------------------------------------------------


async def _elected(conninfo: dict[str, Any]) -> tuple[PostgresStore, PostgresLifelineSession, int]:
    store = PostgresStore(conninfo, owner="me")
    session = PostgresLifelineSession(conninfo, cluster_id=CLUSTER, owner="me", ttl_seconds=60)
    await store.join(member("me"), lifeline_keys(CLUSTER, "me"))
    await session.open()
    term = await session.elect("me")
    assert term is not None
    return store, session, term


async def test_a_stranger_with_a_dead_homes_locks_does_not_stop_an_erasure(roles: Roles) -> None:
    conninfo = roles.alias(roles.login())
    store, journal = PostgresStore(conninfo), PostgresJournal(conninfo)
    numbers, _ = await store.register_types([CART])
    await store.join(member("dead"), (11, 12))
    async with await connect(roles.params) as admin:
        await admin.execute("INSERT INTO sharding_coordinator (term, incarnation) VALUES (1, 'dead')")
    await store.decide(1, [HomeChange(CART.name, 0, 0, 1, "dead", "home")])
    await journal.append([event_row(numbers[CART.name], "alice", 1)])
    async with await psycopg.AsyncConnection.connect(**roles.stranger()) as there:
        await there.execute("SELECT pg_advisory_lock(11), pg_advisory_lock(12)")
        assert await asyncio.to_thread(erase_entity, conninfo, CART.name, "alice", "me") == Erasure(1)
    await store.close()
    await journal.close()


async def test_a_stranger_that_bears_a_dead_nodes_name_is_no_hindrance(roles: Roles) -> None:
    conninfo = roles.alias(roles.login())
    store, session, term = await _elected(conninfo)
    await store.join(member("dead"), lifeline_keys(CLUSTER, "dead"))
    stranger = roles.stranger()
    async with await psycopg.AsyncConnection.connect(
        **{**stranger, "application_name": "sharding/dead/x"}
    ) as there:
        assert await store.bury(term, "dead")
        await there.execute("SELECT 1")
    assert [each.incarnation for each in (await store.members())[1]] == ["me"]
    await store.close()
    await session.close()


async def test_a_lock_that_a_stranger_holds_is_no_sign_of_life(roles: Roles) -> None:
    conninfo = roles.alias(roles.login())
    store, session, term = await _elected(conninfo)
    keys = lifeline_keys(CLUSTER, "dead")
    await store.join(member("dead"), keys)
    async with await psycopg.AsyncConnection.connect(**roles.stranger(), autocommit=True) as stranger:
        for key in keys:
            await stranger.execute("SELECT pg_advisory_lock(%s)", (key,))
        locks = {each.incarnation: each.locks for each in (await store.members())[1]}
        assert locks["dead"] == 0
        assert await store.bury(term, "dead")
    await store.close()
    await session.close()


async def test_a_stranger_that_holds_the_coordinators_lock_stops_no_election(roles: Roles) -> None:
    conninfo = roles.alias(roles.login())
    async with await psycopg.AsyncConnection.connect(**roles.stranger(), autocommit=True) as stranger:
        await stranger.execute("SELECT pg_advisory_lock(%s)", (coordinator_key(CLUSTER),))
        store, session, _ = await _elected(conninfo)
    await store.close()
    await session.close()


async def test_who_may_insert_messages_alone_stores_them_from_outside(roles: Roles) -> None:
    """As docs/roles.md grants it to a site: neither the fence nor the type's row takes more rights.
    A message with the epoch of a home is not for such a role.
    """
    async with await connect(roles.params) as admin:
        await give_homes(admin, 1)
        await admin.execute(
            "INSERT INTO sharding_type (id, name, kind, number_of_shards, extractor, hash_version, role, store_mode)"
            " VALUES (1, 'shop.Cart', 'k', 10, 'x', 'h', '', 's')"
        )
        there = roles.stranger()
        await admin.execute(f"GRANT INSERT ON sharding_message TO {there['user']}".encode())
        insert = (
            "INSERT INTO sharding_message (id, type_id, shard, entity, epoch, seq, position, target_type, target, command,"
            " args, due) VALUES (%s, 1, 0, 'a', %s, 0, 0, 'shop.Cart', 'a', 'close', '', now())"
        )
        async with await psycopg.AsyncConnection.connect(**there, autocommit=True) as outside:
            await outside.execute(insert, ["1", None])
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                await outside.execute(insert, ["2", 1])
        assert await value(admin, "SELECT uses_messages FROM sharding_type WHERE id = 1") is True
        assert await value(admin, "SELECT array_agg(id) FROM sharding_message") == ["1"]


async def test_who_may_change_messages_runs_and_discards_them(roles: Roles) -> None:
    """As docs/roles.md grants it to the site of operators: no trigger takes more rights."""
    async with await connect(roles.params) as admin:
        await give_homes(admin, 1)
        await admin.execute(
            "INSERT INTO sharding_type (id, name, kind, number_of_shards, extractor, hash_version, role, store_mode)"
            " VALUES (1, 'shop.Cart', 'k', 10, 'x', 'h', '', 's')"
        )
        await admin.execute(
            "INSERT INTO sharding_message (id, type_id, shard, entity, epoch, seq, position, target_type, target, command,"
            " args, due) SELECT n, 1, 0, 'a', 1, 0, 0, 'shop.Cart', 'a', 'close', '', now() FROM unnest('{1,2}'::text[]) n"
        )
        there = roles.stranger()
        await admin.execute(
            f"GRANT SELECT ON sharding_type, sharding_message TO {there['user']};"
            f" GRANT UPDATE, DELETE ON sharding_message TO {there['user']}".encode()
        )
        async with await psycopg.AsyncConnection.connect(**there, autocommit=True) as site:
            cursor = await site.execute(QUERIES["operator_run"], {"ids": ["1"], "parked": False})
            assert await cursor.fetchall() == [("1", "shop.Cart", "a", 1, 0, False)]
            cursor = await site.execute(QUERIES["operator_discard"], {"ids": ["2"]})
            assert await cursor.fetchall() == [("2", "shop.Cart", "a", 1, 0, False)]
