"""A primary with a synchronous standby: the journal acknowledges no append before Postgres does."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest
import pytest_asyncio
from psycopg.conninfo import conninfo_to_dict

from sharding_app.adapters.personal.journal import SealedJournal
from sharding_app.adapters.personal.vault import Vault
from sharding_app.adapters.postgres.journal import PostgresJournal
from sharding_app.adapters.postgres.store import PostgresStore
from sharding_app.adapters.postgres.within import Replication, prepare_within, secure, watched
from sharding_app.embedded import OwnPostgres
from sharding_app.ports.deliveries import MessagesGone, Taking
from sharding_app.ports.journal import EventRow, JournalUnavailable
from sharding_app.ports.store import StoreUnavailable
from sharding_app.protocol import personal
from sharding_app.protocol.personal import Plain
from sharding_app.protocol.records import Backend, Decision
from sharding_app.protocol.shard import Shard
from sharding_app.runtime.journal.commits import Commit, NotCommitted, Resident
from sharding_app.runtime.journal.writer import JournalWriter
from tests.integration.adapters.postgres.writers import INSERT, connect, events, give_homes, value
from tests.support.given import event_row, message
from tests.support.postgres_pair import PostgresPair
from tests.support.scratch import make_tables
from tests.support.slack import SLACK

pytestmark = pytest.mark.asyncio

ANSWER_SECONDS = 0.5 * SLACK
ROW = event_row(1, "a", 1)
WAITS = (
    "SELECT count(*) FROM pg_stat_activity"
    " WHERE wait_event = 'SyncRep' AND starts_with(application_name, 'sharding/me/')"
)


@pytest.fixture(scope="module")
def two_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresPair]:
    place = tmp_path_factory.mktemp("pair")
    beside = place / "standby"
    beside.mkdir()
    primary = OwnPostgres(place).start()
    make_tables(conninfo_to_dict(primary.url))
    with PostgresPair(primary, beside) as pair:
        pair.attach()
        yield pair


@pytest.fixture
def pair(two_servers: PostgresPair) -> Iterator[PostgresPair]:
    """The standby follows, and the tables are empty; it does so again afterwards."""
    with two_servers.connect() as admin:
        admin.execute("TRUNCATE sharding_shard, sharding_event, sharding_message, sharding_taken")
    yield two_servers
    two_servers.mend()


@pytest.fixture
def primary(pair: PostgresPair) -> dict[str, Any]:
    return {**conninfo_to_dict(pair.primary.url)}


@pytest_asyncio.fixture
async def journal(primary: dict[str, Any]) -> AsyncIterator[PostgresJournal]:
    journal = PostgresJournal(primary, owner="me", answer_seconds=ANSWER_SECONDS)
    async with await connect(primary) as admin:
        await give_homes(admin, 4)
    await at_last(journal.open)
    yield journal
    await journal.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30 * SLACK):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def waiting(watcher: psycopg.AsyncConnection[tuple[Any, ...]], count: int = 1) -> None:
    """Wait until that number of our sessions waits for the standby."""
    async with asyncio.timeout(30 * SLACK):
        while await value(watcher, WAITS) != count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def none_left_behind(watcher: psycopg.AsyncConnection[tuple[Any, ...]]) -> None:
    """Wait until one of our sessions waits for the standby at most: one that was ended takes a
    moment.
    """
    async with asyncio.timeout(30 * SLACK):
        while await value(watcher, WAITS) > 1:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def next_wait(watcher: psycopg.AsyncConnection[tuple[Any, ...]], pid: int, last: Any = None) -> Any:
    """Wait until a session waits for the standby, and not as it did last. Return since when.

    A wait that was cancelled is shown until the session has taken that in. A second cancel for it
    would end the next statement.
    """
    since = "SELECT max(query_start) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND pid = %s"
    async with asyncio.timeout(30 * SLACK):
        while (found := await value(watcher, since, pid)) in (None, last):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return found


async def at_last(ask: Callable[[], Awaitable[Any]]) -> Any:
    """Ask again while the standby has not caught up, as a node does."""
    async with asyncio.timeout(30 * SLACK):
        while True:
            with suppress(JournalUnavailable, StoreUnavailable):
                return await ask()


async def visible(watcher: psycopg.AsyncConnection[tuple[Any, ...]], count: str) -> None:
    """Wait until a row is visible: the session that waited for the standby has been ended."""
    async with asyncio.timeout(30 * SLACK):
        while not await value(watcher, count):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


class Noted(Commit):
    def __init__(
        self, slot: Resident, entity: str, seq: int, ends: list[tuple[int, NotCommitted | None]]
    ) -> None:
        super().__init__(slot, [event_row(1, entity, seq)])
        self._ends = ends

    def resolved(self, why: NotCommitted | None, detail: str = "") -> None:
        self._ends.append((self.rows[0].seq, why))


async def test_a_commit_that_the_standby_has_not_is_not_settled_as_committed(
    pair: PostgresPair, primary: dict[str, Any], journal: PostgresJournal
) -> None:
    async with await connect(primary) as admin:
        pair.cut()
        with pytest.raises(JournalUnavailable, match="no answer within"):
            await journal.append([ROW])
        for _ in range(3):
            with pytest.raises(JournalUnavailable):
                await journal.settle([ROW])
        assert await events(admin) == [("a", 1, 1)], "it is visible on the primary, and nowhere else"
        await none_left_behind(admin)
        pair.mend()
        assert await at_last(lambda: journal.settle([ROW]))


async def test_a_commit_that_a_promotion_has_lost_was_never_acknowledged(
    tmp_path: Path,
) -> None:
    """The standby is cut off, the primary dies, the standby takes over: what callers were told is
    there, all of it.
    """
    beside = tmp_path / "standby"
    beside.mkdir()
    with PostgresPair(OwnPostgres(tmp_path).start(), beside) as pair:
        primary: dict[str, Any] = conninfo_to_dict(pair.primary.url)
        make_tables(primary)
        pair.attach()
        journal = PostgresJournal(primary, owner="me", answer_seconds=ANSWER_SECONDS)
        writer = JournalWriter(journal, lambda: True)
        slot = Resident("a", Shard("shop.Cart", 0, 1, Resident))
        ends: list[tuple[int, NotCommitted | None]] = []
        task = asyncio.ensure_future(writer.run())
        async with await connect(primary) as admin:
            await give_homes(admin, 1)
            writer.put(Noted(slot, "a", 1, ends))
            await until(lambda: ends == [(1, None)])
            pair.cut()
            writer.put(Noted(slot, "a", 2, ends))
            async with asyncio.timeout(30 * SLACK):
                while await events(admin) != [("a", 1, 1), ("a", 2, 1)]:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            # It is visible now: the writer has ended the session that waited, and asks what became
            # of it.
            await waiting(admin)
            assert ends == [(1, None)]
        await asyncio.to_thread(pair.promote)
        await until(lambda: len(ends) == 2)
        assert ends[1] == (2, None)
        async with await connect(primary) as admin:
            assert await events(admin) == [("a", 1, 1), ("a", 2, 1)], "appended again, where it was lost"
        task.cancel()
        await journal.close()


async def test_rows_of_another_connection_are_settled_in_the_same_way(
    pair: PostgresPair, primary: dict[str, Any], journal: PostgresJournal
) -> None:
    stored = [ROW._replace(name="E", payload=b"{}")]
    async with await connect(primary) as admin, await connect(primary) as other:
        pid, started = (
            await value(other, "SELECT pg_backend_pid()"),
            await value(
                other, "SELECT backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()"
            ),
        )
        await other.execute("SET application_name = 'sharding/me/also'")
        pair.cut()
        insert = asyncio.ensure_future(other.execute(INSERT, ["a", 1, 0, 1]))
        await waiting(admin)
        with pytest.raises(JournalUnavailable):
            await journal.settle_of(Backend(pid, started), stored)
        with pytest.raises(psycopg.OperationalError):
            await insert
        assert await events(admin) == [("a", 1, 1)]
        pair.mend()
        assert await at_last(lambda: journal.settle_of(Backend(pid, started), stored))


@pytest.mark.parametrize("end", ["pg_cancel_backend", "pg_terminate_backend"])
async def test_an_administrator_who_ends_the_wait_acknowledges_nothing(
    pair: PostgresPair, primary: dict[str, Any], journal: PostgresJournal, end: str
) -> None:
    """After a cancelled wait the server reports success, with a warning that the standby may not
    have the commit.
    """
    async with await connect(primary) as admin:
        pair.cut()
        append = asyncio.ensure_future(journal.append([ROW]))
        await waiting(admin)
        await admin.execute(f"SELECT {end}(%s)".encode(), [journal.backends[0].pid])
        with pytest.raises(JournalUnavailable) as lost:
            await append
        assert not lost.value.answered
        assert await events(admin) == [("a", 1, 1)]
        with pytest.raises(JournalUnavailable):
            await journal.settle([ROW])
        pair.mend()
        assert await at_last(lambda: journal.settle([ROW]))


async def test_a_session_that_hears_no_warnings_acknowledges_nothing_either(
    pair: PostgresPair, primary: dict[str, Any]
) -> None:
    """The warning alone tells that the wait was cancelled."""
    deaf = {**primary, "options": "-c client_min_messages=error"}
    journal = PostgresJournal(deaf, owner="me", answer_seconds=ANSWER_SECONDS)
    async with await connect(primary) as admin:
        await give_homes(admin, 4)
        await at_last(journal.open)
        pair.cut()
        append = asyncio.ensure_future(journal.append([ROW]))
        await waiting(admin)
        await admin.execute("SELECT pg_cancel_backend(%s)", [journal.backends[0].pid])
        try:
            with pytest.raises(JournalUnavailable):
                await append
        finally:
            pair.mend()
            await journal.close()


async def test_so_does_the_transaction_of_a_user(pair: PostgresPair, primary: dict[str, Any]) -> None:
    deaf = {**primary, "options": "-c client_min_messages=error"}
    found = Replication()
    async with await connect(primary) as admin:
        with psycopg.connect(**deaf) as users:
            prepare_within(users, "sharding/me/within", 1000)
            users.execute("SELECT pg_logical_emit_message(true, 'test', 'a write')")
            pair.cut()
            with watched(users, found):
                commit = asyncio.ensure_future(asyncio.to_thread(users.commit))
                await waiting(admin)
                await admin.execute("SELECT pg_cancel_backend(%s)", [users.info.backend_pid])
                await commit
            pair.mend()
    assert found.cancelled


async def test_what_others_have_committed_is_secure_only_when_the_standby_has_it(
    pair: PostgresPair, primary: dict[str, Any], journal: PostgresJournal
) -> None:
    """A former home's session was ended while it waited: its events are visible to the next
    home.
    """
    async with await connect(primary) as admin, await connect(primary) as former:
        await former.execute("SET application_name = 'sharding/me/former'")
        await at_last(journal.secure)
        pair.cut()
        insert = asyncio.ensure_future(former.execute(INSERT, ["a", 1, 0, 1]))
        await waiting(admin)
        await admin.execute("SELECT pg_terminate_backend(%s, 60000)", [former.info.backend_pid])
        with pytest.raises(psycopg.OperationalError):
            await insert
        found = await at_last(lambda: journal.read(1, ["a"]))
        assert found["a"].events, "read by the next home"
        for _ in range(2):
            with pytest.raises(JournalUnavailable):
                await journal.secure()
        await none_left_behind(admin)
        pair.mend()
        await at_last(journal.secure)


async def test_messages_that_are_there_already_are_acknowledged_when_the_standby_has_them(
    pair: PostgresPair, primary: dict[str, Any], journal: PostgresJournal
) -> None:
    """The answer to the first storage is lost. Its repetition finds the rows, and has none to
    write.
    """
    rows = [message(1, "m")]
    async with await connect(primary) as admin:
        pair.cut()
        for _ in range(3):
            with pytest.raises(JournalUnavailable):
                await journal.stage(rows)
        await visible(admin, "SELECT count(*) FROM sharding_message")
        with pytest.raises(JournalUnavailable):
            await journal.stage(rows)
        pair.mend()
        await at_last(lambda: journal.stage(rows))
        assert await value(admin, "SELECT count(*) FROM sharding_message") == 1


async def test_a_message_is_taken_by_another_delivery_once_the_standby_has_its_mark(
    pair: PostgresPair, primary: dict[str, Any], journal: PostgresJournal
) -> None:
    """Told before, the home of its sender would delete the row, and a failover would lose the
    mark, with the reply.
    """
    taking = Taking("theirs", None, False, False, foreign="second", taker=(1, 0, 1, "a"))
    async with await connect(primary) as admin:
        pair.cut()
        with pytest.raises(JournalUnavailable):
            await journal.stage([message(1, "reply")], (), [taking])
        for _ in range(2):
            with pytest.raises(JournalUnavailable):
                await journal.stage([message(1, "other")], (), [taking])
        await visible(admin, "SELECT count(*) FROM sharding_taken")
        with pytest.raises(JournalUnavailable):
            await journal.stage([message(1, "other")], (), [taking])
        pair.mend()
        with pytest.raises(MessagesGone):
            await at_last(lambda: journal.stage([message(1, "other")], (), [taking]))
        assert await value(admin, "SELECT string_agg(id, ' ') FROM sharding_message") == "reply"


class Elsewhere:
    """A further journal, which has no trouble."""

    lineage = None

    def __init__(self) -> None:
        self.stored: list[str] = []

    async def append(self, rows: Sequence[EventRow], changes: object, *, on: int) -> None:
        self.stored += [each.entity for each in rows]


def of_person(entity: str, subject: str) -> EventRow:
    value = personal.plain_token(Plain(subject, b"\xa5Smith"))
    return event_row(1, entity, 1, payload=personal.in_json(value))


async def test_a_persons_key_seals_nothing_in_another_database_before_the_standby_has_it(
    pair: PostgresPair, journal: PostgresJournal
) -> None:
    """A failover would take the key, and with it all of the person's data there."""
    there = Elsewhere()
    sealed = SealedJournal(cast(Any, there), Vault([b"a secret of the settings"]), journal)
    await at_last(lambda: sealed.append([of_person("first", "bob")]))
    pair.cut()
    for _ in range(4):  # one makes the key, and is not answered; the others find it
        with pytest.raises(JournalUnavailable):
            await sealed.append([of_person("a", "ann")])
    await sealed.append([of_person("second", "bob")])
    assert there.stored == ["first", "second"], "that key was safe before"
    pair.mend()
    await at_last(lambda: sealed.append([of_person("a", "ann")]))
    assert there.stored == ["first", "second", "a"]


async def test_the_session_of_a_command_waits_again_after_a_wait_that_was_cancelled(
    pair: PostgresPair, primary: dict[str, Any]
) -> None:
    async with await connect(primary) as admin:
        with psycopg.connect(**primary, autocommit=True, application_name="sharding/me/moving") as command:
            secure(command)
            pair.cut()
            waits = asyncio.ensure_future(asyncio.to_thread(secure, command))
            pid, since = command.info.backend_pid, None
            for _ in range(3):
                since = await next_wait(admin, pid, since)
                await admin.execute("SELECT pg_cancel_backend(%s)", [pid])
            await next_wait(admin, pid, since)
            assert not waits.done()
            pair.mend()
            await waits


@pytest.mark.parametrize("setting", ["off", "local", "remote_write"])
async def test_it_is_secure_whatever_the_session_has_been_set_to(
    pair: PostgresPair, primary: dict[str, Any], setting: str
) -> None:
    async with await connect(primary) as admin:
        names = {"application_name": "sharding/me/any", "options": f"-c synchronous_commit={setting}"}
        with psycopg.connect(**{**primary, **names}, autocommit=True) as session:
            pair.cut()
            waits = asyncio.ensure_future(asyncio.to_thread(secure, session))
            await waiting(admin)
            assert not waits.done()
            pair.mend()
            await waits
            left = session.execute("SELECT current_setting('synchronous_commit')").fetchone()
            assert left == (setting,), "the session is its owner's"


async def test_questions_to_the_store_leave_no_session_behind_while_the_standby_is_away(
    pair: PostgresPair, primary: dict[str, Any]
) -> None:
    """Each write of the cluster's rows waits, too, and is tried again: the server's connections are
    not to run out.
    """
    store = PostgresStore(primary, owner="me", answer_seconds=ANSWER_SECONDS)
    assert await at_last(store.cluster_id)
    pair.cut()
    async with await connect(primary) as admin:
        for _ in range(4):
            with pytest.raises(StoreUnavailable):
                await store.record([Decision("test", "nothing")])
        await none_left_behind(admin)
    pair.mend()
    await at_last(lambda: store.record([Decision("test", "nothing")]))
    await store.close()
