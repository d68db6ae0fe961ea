"""Projections whose rows are outside of the cluster's database: events may come again, none is
left out.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

import pytest
from asgiref.sync import sync_to_async
from django.db import OperationalError, connection, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.sqlite3.base import DatabaseWrapper

from sharding_app.adapters.django import projecting
from sharding_app.adapters.django import projections as control
from sharding_app.adapters.postgres import within
from sharding_app.entities.happened import Happened
from sharding_app.entities.projections import Projection, on, projections
from sharding_app.errors import AskTimeout, ProjectionError
from sharding_app.operations.projections import order
from sharding_app.ports.projections import HandlerFailed, NotReady
from tests.integration.adapters.django.projected import MADE, Account, Paid, Writer, journal, log, part, run
from tests.integration.adapters.django.test_projecting import writer as journal_writer
from tests.support.slack import SLACK

pytestmark = pytest.mark.django_db(transaction=True)
writer = journal_writer


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    """End the connections that parts keep beside the test's."""
    MADE.clear()
    yield
    for each in MADE:
        each.leave()


@pytest.fixture
def copies() -> Iterator[type[Projection]]:
    """A projection with a connection of its own, in the same database: two commits."""
    connections["reports"] = connection.copy("reports")
    with projections.isolated():

        class Copies(Projection, name="projected.Copies"):
            source = Account
            database = "reports"

            @on(Paid)
            def paid(self, happened: Happened[Paid]) -> None:
                with connections["reports"].cursor() as cursor:
                    cursor.execute(
                        "INSERT INTO projected (entity, seq, amount) VALUES (%s, %s, %s)",
                        [happened.entity_id, happened.number, happened.event.amount],
                    )

            def clear(self) -> None:
                with connections["reports"].cursor() as cursor:
                    cursor.execute("DELETE FROM projected")

        yield Copies
    connections["reports"].close()
    del connections["reports"]


@pytest.fixture
def posts() -> Iterator[Any]:
    """A projection to a service."""
    with projections.isolated():

        class Posts(Projection, name="projected.Posts"):
            source = Account
            seen: ClassVar[list[tuple[str, int]]] = []
            fails: ClassVar[bool] = False

            @on(Paid)
            async def paid(self, happened: Happened[Paid]) -> None:
                self.seen.append((happened.entity_id, happened.number))

            async def clear(self) -> None:
                if self.fails:
                    raise ConnectionError("the service is away")
                self.seen.clear()

        yield Posts


def reset(projection: type[Projection]) -> bool:
    return order("reset", projection.__dict__["_sharding_projection"].title, 1, "a test", is_bounded=True)


def shows(projection: type[Projection], number: int | None = None) -> bool:
    """Whether it has caught up with `a`."""
    try:
        projection.caught_up_sync(Account.ref("a"), number, timeout=0)
    except AskTimeout:
        return False
    return True


def noted() -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT subject, detail FROM sharding_decision WHERE action = 'projection_reset'")
        return list(cursor.fetchall())


def has_all() -> bool:
    return {each[:2] for each in log()} == set(journal())


def test_a_reset_clears_and_fills_anew(writer: Writer, copies: type[Projection]) -> None:
    work = part(copies)
    writer.append("a", 1, 2)
    writer.commit()
    run(work)
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO projected (entity, seq, amount) VALUES ('wrong', 1, 1)")
    assert reset(copies)
    assert not log()
    run(work)
    assert [each[:2] for each in log()] == journal()
    assert noted() == [("projected.Copies:1", "by a test")]


def test_a_paused_one_stays_paused(writer: Writer, copies: type[Projection]) -> None:
    work = part(copies)
    writer.append("a", 1)
    writer.commit()
    run(work)
    control.pause("projected.Copies", 1)
    reset(copies)
    assert work.take(0, 127).paused


def test_a_pool_of_one_connection_is_enough(
    writer: Writer, copies: type[Projection], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn and a reset need a second connection: they would wait for their own."""
    pool = {"min_size": 1, "max_size": 1, "timeout": 1 * SLACK}
    options = {**connection.settings_dict["OPTIONS"], "pool": pool}
    work = part(copies)
    writer.append("a", 1)
    writer.commit()
    connection.close()
    with monkeypatch.context() as patched:
        patched.setitem(connection.settings_dict, "OPTIONS", options)
        try:
            run(work)
            assert log() == [("a", 1, 1)]
            assert reset(copies)
            run(work)
            assert log() == [("a", 1, 1)]
        finally:
            connection.close()
            connection.close_pool()  # type: ignore[attr-defined]


@pytest.mark.parametrize("database", ["default", "reports"])
def test_a_reset_that_is_cut_between_its_commits_leaves_no_gap(
    writer: Writer, copies: type[Projection], monkeypatch: pytest.MonkeyPatch, database: str
) -> None:
    work = part(copies)
    writer.append("a", 1, 2)
    writer.append("b", 1)
    writer.commit()
    run(work)

    def fails() -> None:
        raise OperationalError("the connection is lost")

    with monkeypatch.context() as patched:
        patched.setattr(connections[database], "commit", fails)
        with pytest.raises((OperationalError, ProjectionError)):
            reset(copies)
    # Either nothing of it has happened, or no turn is taken while old rows are there.
    assert work.take(0, 127).paused == (database == "reports")
    assert has_all()
    control.resume("projected.Copies", 1)
    run(work)
    assert has_all()
    reset(copies)
    run(work)
    assert sorted(each[:2] for each in log()) == journal()


def test_rows_of_a_service_are_cleared_by_an_async_method(writer: Writer, posts: Any) -> None:
    work = part(posts)
    writer.append("a", 1, 2)
    writer.commit()
    run(work)
    posts.seen.append(("wrong", 1))
    reset(posts)
    run(work)
    assert posts.seen == [("a", 1), ("a", 2)]
    posts.fails = True
    with pytest.raises(ProjectionError, match="the service is away") as caught:
        reset(posts)
    assert caught.value.code == "not_cleared"
    assert work.take(0, 127).paused
    posts.fails = False
    reset(posts)
    control.resume("projected.Posts", 1)
    run(work)
    assert posts.seen == [("a", 1), ("a", 2)]


@pytest.mark.parametrize("order", [control.reset, control.pause, control.resume, control.remove])
def test_while_a_service_is_cleared_no_other_order_lets_turns_begin(
    writer: Writer, posts: Any, monkeypatch: pytest.MonkeyPatch, order: Callable[[str, int], None]
) -> None:
    """What a turn had written by then would be cleared, behind its position."""
    work = part(posts)
    writer.append("a", 1, 2)
    writer.commit()
    run(work)
    refused: list[str] = []

    def other() -> None:
        try:
            order("projected.Posts", 1)
        except ProjectionError as error:
            refused.append(error.code)
        finally:
            connections.close_all()

    def turns() -> None:
        if not work.take(0, 127).paused:
            run(work)

    async def clear(self: Any) -> None:
        monkeypatch.undo()
        await asyncio.to_thread(other)
        await sync_to_async(turns)()
        self.seen.clear()

    monkeypatch.setattr(posts, "clear", clear)
    assert reset(posts)
    assert refused == ["being_reset"]
    run(work)
    assert posts.seen == [("a", 1), ("a", 2)]
    control.pause("projected.Posts", 1)
    assert work.take(0, 127).paused


def test_a_database_that_would_not_commit_is_refused(
    writer: Writer, copies: type[Projection], monkeypatch: pytest.MonkeyPatch
) -> None:
    work = part(copies)
    run(work)
    writer.append("a", 1)
    writer.commit()
    with monkeypatch.context() as without:
        without.setitem(connections["reports"].settings_dict, "AUTOCOMMIT", False)
        with pytest.raises(ProjectionError, match="AUTOCOMMIT off"):
            work.take(0, 127)
    run(work)
    assert has_all()


def test_without_clear_nothing_is_changed(writer: Writer, posts: Any) -> None:
    work = part(posts)
    writer.append("a", 1)
    writer.commit()
    run(work)
    posts.clear = Projection.clear
    with pytest.raises(Exception, match="needs a method clear"):
        reset(posts)
    writer.append("a", 2)
    writer.commit()
    run(work)
    assert posts.seen == [("a", 1), ("a", 2)]


def test_who_waits_sees_rows_that_are_elsewhere(writer: Writer, copies: type[Projection], posts: Any) -> None:
    for projection in (copies, posts):
        work = part(projection)
        run(work)
        writer.append("a", 1)
        writer.commit()
        assert not shows(projection)
        run(work)
        assert shows(projection)
        reset(projection)
        assert not shows(projection)
        run(work)
        assert shows(projection)


def test_the_connection_that_secures_lasts_as_long_as_that_of_the_turns(
    writer: Writer, copies: type[Projection], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[BaseDatabaseWrapper] = []

    def copy(self: BaseDatabaseWrapper, alias: str | None = None) -> BaseDatabaseWrapper:
        opened.append(real(self, alias))
        return opened[-1]

    def paid(number: int) -> None:
        writer.append("a", number)
        writer.commit()
        run(work)

    work = part(copies)
    real = BaseDatabaseWrapper.copy
    monkeypatch.setattr(BaseDatabaseWrapper, "copy", copy)
    for number in (1, 2, 3):
        paid(number)
    assert len(opened) == 1
    connections["default"].close()  # after a failover the next one may be to another server
    paid(4)
    first, second = opened
    assert first.connection is None
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [second.connection.info.backend_pid])
    with pytest.raises(OperationalError):
        paid(5)
    run(work)
    assert has_all()
    assert len(opened) == 3


def test_a_wait_for_the_standby_that_was_cancelled_is_waited_for_again(
    writer: Writer, copies: type[Projection], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server says so in a warning. Until then no handler has seen the event."""
    handled: list[bool] = []

    @contextmanager
    def watched(_: object, found: within.Replication) -> Iterator[None]:
        handled.append(has_all())
        yield
        found.cancelled = len(handled) < 3

    work = part(copies)
    run(work)
    writer.append("a", 1)
    writer.commit()
    monkeypatch.setattr(within, "watched", watched)
    run(work)
    assert handled == [False] * 3
    assert has_all()


def test_a_service_that_is_slow_gets_fewer_events_in_a_turn(
    writer: Writer, posts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ends the turns that rest for too long: the same events would come for ever."""
    monkeypatch.setattr(projecting, "IDLE_SECONDS", 0.5 * SLACK)

    async def paid(_: Any, happened: Happened[Paid]) -> None:
        await asyncio.sleep(0.02 * SLACK)
        posts.seen.append((happened.entity_id, happened.number))

    work = part(posts, events=64, chunk=64)
    run(work)
    monkeypatch.setattr(posts, "paid", on(Paid)(paid))
    for amount in range(60):
        writer.append("a", amount)
        writer.commit()
    tries = 0
    while not shows(posts):
        tries += 1
        assert tries < 30
        with suppress(NotReady):
            work._tended(lambda: work.take(0, 127))
    assert list(dict.fromkeys(posts.seen)) == journal()
    assert len(posts.seen) < 4 * 60
    work._begin["idle_timeout"] = "60000ms"  # these rest for no reason of theirs
    for _ in range(200):
        work.take(0, 127)
    assert work._limits_now().events == 64


@pytest.mark.parametrize("alias", ["default", "reports"])
def test_a_function_of_on_commit_that_fails_ends_nothing_else(
    writer: Writer, copies: type[Projection], caplog: pytest.LogCaptureFixture, alias: str
) -> None:
    """Django calls those of another database behind the commit of the rows, and before that of the
    position; and none behind one that has failed.
    """
    called: list[str] = []

    def mail(entity: str) -> None:
        if entity == "a":
            raise ConnectionError("no mail server")
        called.append(entity)

    class Mails(Projection, name="projected.Mails"):
        source = Account
        database = alias

        @on(Paid)
        def paid(self, happened: Happened[Paid]) -> None:
            with connections[alias].cursor() as cursor:
                cursor.execute(
                    "INSERT INTO projected (entity, seq, amount) VALUES (%s, %s, 0)",
                    [happened.entity_id, happened.number],
                )
            transaction.on_commit(lambda: mail(happened.entity_id), using=alias)

    work = part(Mails)
    run(work)
    for entity in "abc":
        writer.append(entity, 1)
    writer.commit()
    for _ in range(2):
        run(work)
    assert [entity for entity, *_ in log()] == ["a", "b", "c"]
    assert called == ["b", "c"]
    assert not control.held("projected.Mails", 1)
    assert len([each for each in caplog.records if "on_commit has failed" in each.getMessage()]) == 1


def test_an_error_of_another_kind_of_database_parks_its_event_alone(
    writer: Writer, copies: type[Projection], tmp_path: Path
) -> None:
    """Its connections have no `closed`, as psycopg's have."""
    connections["reports"].close()
    settings: dict[str, Any] = {**connection.settings_dict, "OPTIONS": {}, "TIME_ZONE": None}
    settings |= {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "rows")}
    connections["reports"] = DatabaseWrapper(settings, "reports")
    with connections["reports"].cursor() as cursor:
        cursor.execute("CREATE TABLE projected (entity text, seq int, amount int UNIQUE)")
    work = part(copies, failures=1)
    run(work)
    writer.append("a", 13)
    writer.append("b", 13)
    writer.append("c", 1)
    writer.commit()
    with pytest.raises(HandlerFailed, match="UNIQUE"):
        work.take(0, 127)
    run(work, careful=True)
    with connections["reports"].cursor() as cursor:
        cursor.execute("SELECT DISTINCT entity FROM projected ORDER BY entity")
        assert cursor.fetchall() == [("a",), ("c",)]
    (held,) = control.held("projected.Copies", 1)
    assert (held.entity, held.parked) == ("b", True)
