"""Handlers that break their own transaction: the event counts as failed, and others go on."""

from collections.abc import Callable, Iterator

import pytest
from django.db import DatabaseError, connection, transaction

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


@pytest.mark.parametrize("mistake", [divides_by_zero, cannot_be_saved, has_no_parent])
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
