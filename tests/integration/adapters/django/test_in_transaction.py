"""The threads that run a user's own writes: so many and no more, none waits for a lock for ever,
and each phase of their transaction means what it means.
"""

import asyncio
import contextlib
import logging
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from django.contrib.auth.models import Group
from django.db import IntegrityError, OperationalError, connection, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from sharding_app import wiring
from sharding_app.adapters.django.transactional import DjangoTogether
from sharding_app.adapters.postgres.connection import cut
from sharding_app.adapters.postgres.journal import PostgresJournal
from sharding_app.ports.deliveries import MessageChanges, MessageRow, MessagesGone, Taking
from sharding_app.ports.journal import EventRow, JournalUnavailable, RowRefused, ShardsFenced
from sharding_app.protocol.records import Backend, Lineage
from tests.integration.runtime.held_row import held_row
from tests.support.given import event_row
from tests.support.live import until
from tests.support.slack import SLACK

pytestmark = pytest.mark.django_db(transaction=True)


@contextmanager
def together(*, threads: int, lock_timeout_seconds: float) -> Iterator[DjangoTogether]:
    """As a node makes it."""
    made = DjangoTogether(
        "default",
        PostgresJournal(wiring.conninfo("default"), owner="test"),
        owner="test",
        threads=threads,
        lock_timeout_seconds=lock_timeout_seconds,
    )
    try:
        yield made
    finally:
        asyncio.run(made.close())


def test_a_function_waits_for_a_lock_so_long_and_no_longer() -> None:
    def write() -> None:
        Group.objects.create(name="rolled back")
        Group.objects.select_for_update().get(name="held")

    with held_row("held") as row, together(threads=1, lock_timeout_seconds=0.2) as run:
        with pytest.raises(OperationalError, match="lock timeout"):
            asyncio.run(run([], [write]))
        assert row.is_held
        assert not Group.objects.filter(name="rolled back").exists()
        asyncio.run(run([], [lambda: Group.objects.create(name="next")]))
    assert set(Group.objects.values_list("name", flat=True)) == {"held", "next"}


def test_nothing_is_written_on_a_server_that_may_lack_what_is_in_memory() -> None:
    """After a failover that lost the tail, the object's next number would leave a gap."""
    journal = PostgresJournal(wiring.conninfo("default"), owner="test")
    run = DjangoTogether("default", journal, owner="test", threads=1, lock_timeout_seconds=1.0)
    here = asyncio.run(lineage_of(journal))
    journal.live_in(here)
    asyncio.run(run([], [lambda: Group.objects.create(name="here")]))
    journal.live_in(Lineage(here.system, here.timeline + 1))
    with pytest.raises(JournalUnavailable, match="what is in memory on"):
        asyncio.run(run([], [lambda: Group.objects.create(name="elsewhere")]))
    assert set(Group.objects.values_list("name", flat=True)) == {"here"}
    asyncio.run(run.close())


def test_a_commit_that_was_answered_before_the_node_lives_elsewhere_is_asked_about() -> None:
    """The answer is a former server's. The present one may lack the commit."""
    journal = PostgresJournal(wiring.conninfo("default"), owner="test")
    run = DjangoTogether("default", journal, owner="test", threads=1, lock_timeout_seconds=1.0)
    here = asyncio.run(lineage_of(journal))
    journal.live_in(here)
    settled: list[bool] = []

    async def settle_of(backend: Backend, rows: Sequence[EventRow]) -> bool:
        settled.append(journal.lineage != here)
        return False

    async def moves_on() -> None:
        def write() -> None:
            Group.objects.create(name="there")
            loop.call_soon_threadsafe(journal.live_in, Lineage(here.system, here.timeline + 1))

        loop = asyncio.get_running_loop()
        await run([], [write])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "settle_of", settle_of)
        with pytest.raises(JournalUnavailable, match="before the commit"):
            asyncio.run(moves_on())
    assert settled == [True]
    asyncio.run(run.close())


def test_a_thread_that_waits_for_a_server_which_the_node_has_left_is_set_free() -> None:
    """That server may never answer, and its machine may go on to say that it lives."""
    journal = PostgresJournal(wiring.conninfo("default"), owner="test")
    run = DjangoTogether("default", journal, owner="test", threads=1, lock_timeout_seconds=1.0)
    here = asyncio.run(lineage_of(journal))
    journal.live_in(here)

    async def moves_on() -> None:
        def wait() -> None:
            loop.call_soon_threadsafe(journal.live_in, Lineage(here.system, here.timeline + 1))
            with connections["default"].cursor() as cursor:
                cursor.execute("SELECT pg_sleep(600)")

        loop = asyncio.get_running_loop()
        async with asyncio.timeout(60):
            await run([], [wait])

    with pytest.raises(OperationalError):
        asyncio.run(moves_on())
    journal.live_in(here)
    asyncio.run(run([], [lambda: Group.objects.create(name="next")]))
    assert set(Group.objects.values_list("name", flat=True)) == {"next"}
    with connections["default"].cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND query = 'SELECT pg_sleep(600)'"
        )
        assert cursor.fetchall() == [(True,)]
    asyncio.run(run.close())


def test_the_node_ends_while_a_thread_connects_again() -> None:
    has_begun, goes_on, connects = threading.Event(), threading.Event(), threading.Event()

    def write() -> None:
        with connections["default"].cursor() as cursor:
            cursor.execute("SELECT 1")
        has_begun.set()
        assert goes_on.wait(20 * SLACK)
        Group.objects.create(name="never")

    async def end(run: DjangoTogether) -> None:
        under_way = asyncio.ensure_future(run([], [write]))
        assert await asyncio.to_thread(has_begun.wait, 20 * SLACK)
        (busy,) = run._busy
        params = busy.get_connection_params()

        def elsewhere() -> dict[str, Any]:
            connects.set()
            port = silent.getsockname()[1]
            return {**params, "host": "127.0.0.1", "port": port, "sslmode": "disable", "connect_timeout": 2}

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(busy, "get_connection_params", elsewhere)
            cut(busy.connection)
            goes_on.set()
            assert await asyncio.to_thread(connects.wait, 20 * SLACK)
            await run.close()
            with pytest.raises(OperationalError):
                await under_way

    with socket.create_server(("127.0.0.1", 0)) as silent, together(threads=1, lock_timeout_seconds=5) as run:
        asyncio.run(end(run))
        assert run.pool._shutdown
    assert not Group.objects.exists()


async def lineage_of(journal: PostgresJournal) -> Lineage:
    await journal.open()
    found = journal._appends[0].lineage
    await journal.close()
    assert found is not None
    return found


def test_the_threads_are_bounded_and_each_has_one_connection() -> None:
    """Two of five go first; the others wait for their turn, and all are done in the end."""
    under_way: set[int] = set()
    full, release = threading.Event(), threading.Event()
    most = 0

    def write(name: str) -> None:
        nonlocal most
        under_way.add(threading.get_ident())
        most = max(most, len(under_way))
        if len(under_way) == 2:
            full.set()
        Group.objects.create(name=name)
        assert release.wait(10 * SLACK)

    async def main(run: DjangoTogether) -> None:
        asked = [
            asyncio.ensure_future(run([], [lambda name=name: write(name)]))  # type: ignore[misc]
            for name in "abcde"
        ]
        assert await asyncio.to_thread(full.wait, 10 * SLACK)
        assert not any(each.done() for each in asked)
        release.set()
        await asyncio.gather(*asked)

    with together(threads=2, lock_timeout_seconds=5) as run:
        asyncio.run(main(run))
        assert not run._busy
    assert most == len(under_way) == 2
    assert Group.objects.count() == 5


@pytest.fixture
def homes() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO sharding_shard (type_id, shard, epoch, home, step) VALUES (1, 0, 1, 'n', 'home')"
        )


def stored() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT entity FROM sharding_event ORDER BY 1")
        return [row[0] for row in cursor.fetchall()]


async def asked(
    run: DjangoTogether, rows: Sequence[EventRow], functions: Sequence[Callable[[], object]]
) -> None:
    """Run it where the journal is asked what became of it."""
    try:
        await run(rows, functions)
    finally:
        await run._journal.close()


class BrokerDown(Exception):
    """What a hook of the user's raises."""


def raise_broker_down() -> None:
    raise BrokerDown("no broker")


def raise_deadlock() -> None:
    raise OperationalError("deadlock detected, in a query of the hook's own")


def raise_cancelled() -> None:
    """As a hook does that runs async code which was cancelled."""
    raise asyncio.CancelledError


def raise_exit() -> None:
    sys.exit("no broker")


@pytest.mark.parametrize("hook", [raise_broker_down, raise_deadlock, raise_cancelled, raise_exit])
@pytest.mark.usefixtures("homes")
def test_a_hook_that_raises_after_the_commit_is_logged_and_takes_nothing_back(
    hook: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    ran: list[str] = []

    def write() -> None:
        Group.objects.create(name="g")
        transaction.on_commit(lambda: ran.append("before"))
        transaction.on_commit(hook)

    with (
        together(threads=1, lock_timeout_seconds=5) as run,
        caplog.at_level(logging.ERROR, "sharding.journal"),
    ):
        asyncio.run(run([event_row(1, "a", 1)], [write]))
        asyncio.run(run([event_row(1, "b", 1)], []))
    assert stored() == ["a", "b"]
    assert Group.objects.count() == 1
    assert ran == ["before"]
    assert [each.__dict__["action"] for each in caplog.records] == ["hook_failed"]


@pytest.mark.usefixtures("homes")
def test_what_each_phase_raises() -> None:
    def write() -> None:
        Group.objects.create(name="g")

    def deferred() -> None:
        with connections["default"].cursor() as cursor:
            cursor.execute("SET CONSTRAINTS ALL DEFERRED")
            cursor.execute("INSERT INTO auth_group_permissions (group_id, permission_id) VALUES (-1, -1)")

    with together(threads=1, lock_timeout_seconds=5) as run:
        with pytest.raises(BrokerDown):
            asyncio.run(run([event_row(1, "a", 1)], [write, raise_broker_down]))
        with pytest.raises(ShardsFenced):
            asyncio.run(run([event_row(1, "a", 1, epoch=2)], [write]))
        with pytest.raises(RowRefused):
            asyncio.run(run([event_row(1, "a", 1, payload=b"{")], [write]))
        with pytest.raises(Exception, match="foreign key") as refused:
            asyncio.run(run([event_row(1, "a", 1)], [write, deferred]))
        assert not isinstance(refused.value, JournalUnavailable)
    assert stored() == []
    assert not Group.objects.exists()


def catch_a_value() -> None:
    with contextlib.suppress(ValueError):
        Group.objects.create(name="other", id="no number")


def catch_in_a_block() -> None:
    with contextlib.suppress(BrokerDown), transaction.atomic(savepoint=False):
        raise BrokerDown


def catch_a_statement() -> None:
    with contextlib.suppress(IntegrityError):
        Group.objects.create(name="g")


@pytest.mark.parametrize(
    "broken", [catch_a_value, catch_in_a_block, catch_a_statement, lambda: transaction.set_rollback(True)]
)
@pytest.mark.usefixtures("homes")
def test_a_function_that_has_broken_its_transaction_is_told_so(broken: Callable[[], None]) -> None:
    """Django rolls such a transaction back without a word, at what looks like its commit."""

    def write() -> None:
        Group.objects.create(name="g")
        broken()

    with together(threads=1, lock_timeout_seconds=5) as run:
        with pytest.raises(transaction.TransactionManagementError, match="has ended its transaction"):
            asyncio.run(run([event_row(1, "a", 1)], [write]))
        assert stored() == []
        assert not Group.objects.exists()
        asyncio.run(run([event_row(1, "a", 1)], [lambda: Group.objects.create(name="next")]))
    assert stored() == ["a"]


@pytest.mark.usefixtures("homes")
def test_a_connection_that_a_function_has_lost_is_no_mistake_of_its_transaction() -> None:
    def write() -> None:
        Group.objects.create(name="g")
        with contextlib.suppress(OperationalError), connections["default"].cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(pg_backend_pid(), 5000)")

    with together(threads=1, lock_timeout_seconds=5) as run, pytest.raises(JournalUnavailable):
        asyncio.run(run([event_row(1, "a", 1)], [write]))


@pytest.mark.usefixtures("homes")
def test_a_number_that_the_next_home_has_taken_is_told_as_fenced() -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE sharding_shard SET epoch = 2")
        cursor.execute(
            "INSERT INTO sharding_event (type_id, entity, seq, shard, epoch, name, version, payload)"
            " VALUES (1, 'a', 1, 0, 2, 'E', 1, '{}')"
        )
    with together(threads=1, lock_timeout_seconds=5) as run, pytest.raises(ShardsFenced):
        asyncio.run(asked(run, [event_row(1, "a", 1)], []))


@pytest.mark.parametrize("style", ["SQL,DMY", "German", "Postgres,MDY", "ISO"])
@pytest.mark.parametrize("stored_first", [True, False])
@pytest.mark.usefixtures("homes")
def test_a_lost_answer_to_the_commit_is_settled_however_dates_are_written(
    monkeypatch: pytest.MonkeyPatch, style: str, stored_first: bool
) -> None:
    """The server process ends in the moment of the commit, before it or after it, and Django
    connects anew at once.
    """

    def write() -> None:
        Group.objects.create(name="g")

    def commit_and_end(self: BaseDatabaseWrapper) -> None:
        if stored_first:
            commit(self)
        with contextlib.suppress(psycopg.OperationalError):
            self.connection.execute("SELECT pg_terminate_backend(pg_backend_pid(), 5000)")
        raise OperationalError("the connection was lost")

    monkeypatch.setitem(connection.settings_dict["OPTIONS"], "options", f"-c DateStyle={style}")
    wrapper: Any = BaseDatabaseWrapper
    commit = wrapper._commit
    with together(threads=1, lock_timeout_seconds=5) as run:
        monkeypatch.setattr(wrapper, "_commit", commit_and_end)
        if stored_first:
            asyncio.run(asked(run, [event_row(1, "a", 1)], [write]))
        else:
            with pytest.raises(JournalUnavailable, match="before the commit"):
                asyncio.run(asked(run, [event_row(1, "a", 1)], [write]))
        monkeypatch.setattr(wrapper, "_commit", commit)
    assert stored() == (["a"] if stored_first else [])
    assert Group.objects.count() == stored_first


def test_it_closes_on_the_event_loop_and_what_still_runs_fails() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def write() -> None:
        Group.objects.create(name="never")
        begun.set()
        assert go_on.wait(20 * SLACK)

    async def main(run: DjangoTogether) -> None:
        await run([], [lambda: Group.objects.create(name="first")])
        under_way = asyncio.ensure_future(run([], [write]))
        waits = [asyncio.ensure_future(run([], [write])) for _ in range(3)]
        assert await asyncio.to_thread(begun.wait, 20 * SLACK)
        await run.close()
        go_on.set()
        with pytest.raises((OperationalError, JournalUnavailable)):
            await under_way
        for each in await asyncio.gather(*waits, return_exceptions=True):
            assert isinstance(each, (JournalUnavailable, OperationalError, asyncio.CancelledError))
        with pytest.raises(RuntimeError):
            await run([], [])

    with together(threads=2, lock_timeout_seconds=5) as made:
        asyncio.run(main(made))
        assert not made._resting
    assert set(Group.objects.values_list("name", flat=True)) == {"first"}

    def is_quiet() -> bool:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                " AND application_name = 'sharding/test/also' AND state <> 'idle'"
            )
            (at_work,) = cursor.fetchone()
        return not at_work

    until(is_quiet, 20, "no session is at work any more")


@pytest.mark.usefixtures("homes")
def test_messages_are_stored_and_taken_with_the_users_rows_or_not_at_all() -> None:
    sent = MessageRow("m", 1, 0, "a", 1, 1, 0, "shop.Cart", "b", "outbid", b"\x90")

    def waiting() -> list[str]:
        with connection.cursor() as cursor:
            cursor.execute("SELECT id FROM sharding_message")
            return [row[0] for row in cursor.fetchall()]

    def insert(name: str) -> Callable[[], object]:
        return lambda: Group.objects.create(name=name)

    with together(threads=1, lock_timeout_seconds=5) as run:
        at = asyncio.run(run([event_row(1, "a", 1)], [insert("sent")], MessageChanges([sent])))
        assert at is not None
        assert waiting() == ["m"]
        assert asyncio.run(
            run([event_row(1, "b", 1)], [insert("taken")], MessageChanges(takes=[Taking("m")]))
        )
        assert waiting() == []
        with pytest.raises(MessagesGone) as gone:
            asyncio.run(
                run([event_row(1, "b", 2)], [insert("again")], MessageChanges([sent], takes=[Taking("m")]))
            )
    assert gone.value.gone == {"m"}
    assert waiting() == []
    assert set(Group.objects.values_list("name", flat=True)) == {"sent", "taken"}
    assert stored() == ["a", "b"]


@pytest.mark.usefixtures("homes")
def test_a_message_of_another_journal_is_marked_with_the_users_rows_or_not_at_all() -> None:
    def insert(name: str) -> Callable[[], object]:
        return lambda: Group.objects.create(name=name)

    def marks() -> list[tuple[str, bool]]:
        with connection.cursor() as cursor:
            cursor.execute("SELECT id, partial FROM sharding_taken")
            return [(name, partial) for name, partial in cursor.fetchall()]

    taking = Taking("m", foreign="b", taker=(1, 0, 1, "b"), park=True)
    with together(threads=1, lock_timeout_seconds=5) as run:
        asyncio.run(run([event_row(1, "b", 1)], [insert("first")], MessageChanges(takes=[taking])))
        assert marks() == [("m", True)]
        with pytest.raises(MessagesGone) as gone:
            asyncio.run(run([event_row(1, "b", 2)], [insert("again")], MessageChanges(takes=[taking])))
        assert gone.value.marked == {"m": True}
        last = taking._replace(park=False, resumed=True)
        asyncio.run(run([event_row(1, "b", 2)], [insert("last")], MessageChanges(takes=[last])))
        assert marks() == [("m", False)]
    assert set(Group.objects.values_list("name", flat=True)) == {"first", "last"}
    assert stored() == ["b", "b"]
