"""Handlers that break their own transaction: the event counts as failed, and others go on."""

import asyncio
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from sharding_app.adapters.django import projecting
from sharding_app.adapters.django import projections as control
from sharding_app.entities.happened import Happened
from sharding_app.entities.projections import Projection, on, projections
from sharding_app.ports.projections import HandlerFailed
from tests.integration.adapters.django.projected import Account, Paid, Writer, log, part, run
from tests.integration.adapters.django.test_projecting import writer as journal_writer

pytestmark = pytest.mark.django_db(transaction=True)
writer = journal_writer
BAD = 13


def divides_by_zero() -> None:
    """Catch an error of the server, which has ended the transaction."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1 / 0")
    except DatabaseError:
        return


def cannot_be_saved() -> None:
    """Do as the ORM does whose error is caught."""
    transaction.set_rollback(True)


def has_no_parent() -> None:
    """Break a constraint that is looked at by the commit, as Django's foreign keys are."""
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO projected_child VALUES (7)")


def leaves() -> None:
    """Call a command line, for example. On its way through a task this would end the loop."""
    sys.exit(1)


def is_cancelled() -> None:
    raise asyncio.CancelledError


def names_a_file() -> None:
    """Tell a text that no column takes: a name that is not UTF-8 has lone surrogates."""
    raise ValueError(f"cannot read {os.fsdecode(bytes([0xFF, 0]))}")


@pytest.fixture(autouse=True)
def unlogged(monkeypatch: pytest.MonkeyPatch) -> None:
    """pytest-xdist sends the log of a test to another process, and cannot send lone surrogates."""
    monkeypatch.setattr(projecting.logger, "disabled", True)


@pytest.fixture
def of_mistakes() -> Iterator[Callable[[Callable[[], None]], type[Projection]]]:
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE projected_parent (id integer PRIMARY KEY)")
        cursor.execute(
            "CREATE TABLE projected_child (parent integer REFERENCES projected_parent DEFERRABLE INITIALLY DEFERRED)"
        )

    def make(mistake: Callable[[], None]) -> type[Projection]:
        class Careless(Projection, name="projected.Careless"):
            source = Account

            @on(Paid)
            def paid(self, happened: Happened[Paid]) -> None:
                with connection.cursor() as cursor:
                    cursor.execute(
                        "INSERT INTO projected (entity, seq, amount) VALUES (%s, %s, %s)",
                        [happened.entity_id, happened.number, happened.event.amount],
                    )
                if happened.event.amount == BAD:
                    mistake()

        return Careless

    with projections.isolated():
        yield make
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE projected_child, projected_parent")


@pytest.mark.parametrize(
    "mistake", [divides_by_zero, cannot_be_saved, has_no_parent, leaves, is_cancelled, names_a_file]
)
def test_a_handler_that_breaks_its_transaction_has_failed(
    writer: Writer,
    of_mistakes: Callable[[Callable[[], None]], type[Projection]],
    mistake: Callable[[], None],
) -> None:
    work = part(of_mistakes(mistake), failures=1)
    run(work)
    writer.append("a", 1, BAD, 3)
    writer.append("b", 1)
    writer.commit()
    with pytest.raises(HandlerFailed):
        work.take(0, 127)
    assert log() == []
    assert work.take(0, 127, careful=True).failed == 1
    (held,) = control.held("projected.Careless", 1)
    assert (held.entity, held.number, held.parked) == ("a", 2, True)
    assert log() == [("a", 1, 1), ("b", 1, 1)]


@pytest.mark.parametrize("mistake", [leaves, is_cancelled, names_a_file])
def test_an_async_handler_that_ends_something_else_has_failed(
    writer: Writer, mistake: Callable[[], None]
) -> None:
    seen: list[tuple[str, int]] = []
    with projections.isolated():

        class Posts(Projection, name="projected.Posts"):
            source = Account

            @on(Paid)
            async def paid(self, happened: Happened[Paid]) -> None:
                if happened.event.amount == BAD:
                    mistake()
                seen.append((happened.entity_id, happened.number))

        work: Any = part(Posts, failures=1)
    run(work)
    writer.append("a", BAD, 2)
    writer.append("b", 1)
    writer.commit()

    async def turns() -> None:
        with pytest.raises(HandlerFailed):
            await work.turn(0, 1, careful=False)
        assert (await work.turn(0, 1, careful=True)).failed == 1
        await asyncio.get_running_loop().run_in_executor(work.thread, work.leave)

    asyncio.run(turns())
    work.leave()
    (held,) = control.held("projected.Posts", 1)
    assert (held.entity, held.number, held.parked) == ("a", 1, True)
    assert seen == [("b", 1)]


@pytest.mark.parametrize("mistake", [leaves, is_cancelled, names_a_file])
def test_what_fails_behind_the_commit_holds_up_nothing(
    writer: Writer,
    of_mistakes: Callable[[Callable[[], None]], type[Projection]],
    mistake: Callable[[], None],
) -> None:
    work = part(of_mistakes(lambda: transaction.on_commit(mistake)), failures=1)
    run(work)
    writer.append("a", 1, BAD, 3)
    writer.commit()
    assert work.take(0, 127).events == 3
    run(work)
    assert log() == [("a", 1, 1), ("a", 2, BAD), ("a", 3, 3)]


def test_an_async_handler_can_be_closed_in_its_middle() -> None:
    """As at the end of a loop that leaves it behind."""
    ends: list[str] = []

    async def waits() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ends.append("closed")

    async def begins() -> None:
        handler = projecting._sent(waits())
        handler.send(None)
        handler.close()

    asyncio.run(begins())
    assert ends == ["closed"]
