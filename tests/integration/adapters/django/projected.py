"""A projection whose rows are a log, and a journal that tests write to by hand."""

import itertools
import json
from collections.abc import Iterable
from typing import Any, ClassVar

import psycopg
from django.db import connection

from sharding_app import EventSourced, applies, event
from sharding_app.adapters.django.projecting import DjangoPart
from sharding_app.entities.happened import Happened
from sharding_app.entities.projections import Projection, on, on_erased
from sharding_app.protocol.projection.turn import Limits
from tests.support.slack import SLACK

MADE: list[DjangoPart] = []
"""The parts of a test, for one that has to end what they keep."""
TABLE = "CREATE TABLE projected (place serial, entity text, seq bigint, amount bigint)"


@event
class Paid:
    amount: int


@event(name="projected.Noted")
class Noted:
    text: str


class Account(EventSourced, name="projected.Account"):
    balance: int = 0

    @applies(Paid)
    def on_paid(self, happened: Paid) -> None:
        self.balance += happened.amount

    @applies(Noted)
    def on_noted(self, happened: Noted) -> None:
        """Change nothing."""


class Payments(Projection, name="projected.Payments"):
    source = Account
    bad: ClassVar[set[int]] = set()
    "Amounts at which the handler fails."

    @on(Paid)
    def paid(self, happened: Happened[Paid]) -> None:
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO projected (entity, seq, amount) VALUES (%s, %s, %s)",
                [happened.entity_id, happened.number, happened.event.amount],
            )
            if happened.event.amount in self.bad:
                raise ValueError(f"no {happened.event.amount}")

    @on_erased
    def erased(self, ref: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM projected WHERE entity = %s", [ref.entity_id])

    def clear(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM projected")


def part(projection: type[Projection] = Payments, **limits: Any) -> DjangoPart:
    found = projection._sharding_projection
    assert found is not None
    MADE.append(DjangoPart("default", found, limits=Limits(**limits), lock_timeout_seconds=5.0 * SLACK))
    return MADE[-1]


def run(work: DjangoPart, first: int = 0, last: int = 127, *, turns: int = 200, careful: bool = False) -> int:
    """Take turns until there is no more to do; return the number of events."""
    events = 0
    for _ in range(turns):
        outcome = work.take(first, last, careful=careful)
        events += outcome.events
        if not outcome.more:
            return events
    raise AssertionError("it does not come to an end")


def log() -> list[tuple[str, int, int]]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT entity, seq, amount FROM projected ORDER BY place")
        return list(cursor.fetchall())


def journal() -> list[tuple[str, int]]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT entity, seq FROM sharding_event ORDER BY entity, seq")
        return list(cursor.fetchall())


class Writer:
    """A session that appends events, in transactions that may stay open."""

    def __init__(self, params: dict[str, Any], type_name: str = "projected.Account") -> None:
        self.connection = psycopg.connect(**params)
        self.type_name = type_name
        self.numbers: dict[str, itertools.count[int]] = {}

    def append(self, entity: str, *amounts: int, first: int | None = None, name: str = "Paid") -> None:
        for place, amount in enumerate(amounts):
            self.put(entity, name, number=None if first is None else first + place, amount=amount)

    def put(self, entity: str, name: str, number: int | None = None, **fields: Any) -> None:
        """Append one event."""
        self.connection.execute(
            "INSERT INTO sharding_event (type_id, entity, seq, shard, epoch, name, version, payload)"
            " SELECT t.id, %s, %s, 0, 1, %s, 1, %s FROM sharding_type t WHERE name = %s",
            [entity, number or self._next(entity), name, json.dumps(fields), self.type_name],
        )

    def append_together(self, entities: Iterable[str], amount: int) -> None:
        rows = [(entity, self._next(entity)) for entity in entities]
        self.connection.execute(
            "INSERT INTO sharding_event (type_id, entity, seq, shard, epoch, name, version, payload)"
            " SELECT t.id, given.entity, given.seq, 0, 1, 'Paid', 1, %s"
            " FROM sharding_type t, unnest(%s::text[], %s::bigint[]) AS given (entity, seq) WHERE name = 'projected.Account'",
            [json.dumps({"amount": amount}), [each for each, _ in rows], [each for _, each in rows]],
        )

    def _next(self, entity: str) -> int:
        if entity not in self.numbers:
            row = self.connection.execute(
                "SELECT coalesce(max(seq), 0) FROM sharding_event WHERE entity = %s", [entity]
            ).fetchone()
            assert row is not None
            self.numbers[entity] = itertools.count(row[0] + 1)
        return next(self.numbers[entity])

    def commit(self) -> None:
        self.connection.commit()

    def close(self) -> None:
        self.connection.close()
