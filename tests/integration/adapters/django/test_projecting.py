"""Turns of projections on PostgreSQL: each event once, in order, none skipped."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection

from sharding_app import EventSourced, applies, event, wiring
from sharding_app.adapters.django import projecting
from sharding_app.adapters.django import projections as control
from sharding_app.adapters.django.projecting import DjangoPart
from sharding_app.adapters.postgres.sql import QUERIES
from sharding_app.entities.happened import Happened
from sharding_app.entities.projections import Projection, on, projections
from sharding_app.entities.registry import registry
from sharding_app.errors import AskTimeout, ProjectionError
from sharding_app.ports.projections import HandlerFailed, NotReady
from sharding_app.protocol.projection.slices import slice_of
from sharding_app.protocol.projection.turn import Outcome
from tests.integration.adapters.django.projected import (
    TABLE,
    Account,
    Paid,
    Payments,
    Writer,
    journal,
    log,
    part,
    run,
)
from tests.support.live import until
from tests.support.slack import SLACK

WAITS_FOR_A_LOCK = (
    "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid)"
    " WHERE NOT l.granted AND a.datname = current_database()"
)
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Writer]:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO sharding_type (name, kind, number_of_shards, extractor, hash_version, role, store_mode)"
            " VALUES ('projected.Account', 'event sourced', 1, '', 'crc32-1', '', 'postgres') RETURNING id"
        )
        cursor.execute(
            "INSERT INTO sharding_shard (type_id, shard, epoch, home, step)"
            " SELECT id, 0, 1, 'n', 'home' FROM sharding_type WHERE name = 'projected.Account'"
        )
        cursor.execute(TABLE)
    monkeypatch.setattr("sharding_app.entities.projections._make", control.DjangoControl)
    made = Writer(dict(wiring.conninfo("default")))
    yield made
    made.close()
    Payments.bad = set()
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE projected")
        cursor.execute(
            "TRUNCATE sharding_projection, sharding_position, sharding_filled, sharding_held, sharding_change"
        )


def in_time(condition: Callable[[], bool]) -> None:
    """Wait for a condition: transactions of other tests, on the same server, hold positions up."""
    until(condition, 60.0, "positions have passed")


def is_exact() -> None:
    """The log has each event of the journal once, and each entity's in order."""
    numbers: dict[str, list[int]] = {}
    for entity, seq, _ in log():
        numbers.setdefault(entity, []).append(seq)
    assert all(found == sorted(found) for found in numbers.values())
    assert sorted((entity, seq) for entity, found in numbers.items() for seq in found) == journal()


def test_a_fill_and_what_comes_after_it(writer: Writer) -> None:
    for number in range(30):
        writer.append(f"a{number}", 1, 2, 3)
    writer.append("long", *range(50))
    writer.commit()
    work = part(events=20, chunk=7, keys=8)
    work.take(0, 127)
    writer.append("a1", 4)
    writer.append("b", 1)
    writer.commit()
    run(work)
    is_exact()
    writer.append("a1", 5)
    writer.append("new", 1, 2)
    writer.commit()
    run(work)
    is_exact()
    assert [each for each in log() if each[0] == "a1"] == [
        ("a1", 1, 1), ("a1", 2, 2), ("a1", 3, 3), ("a1", 4, 4), ("a1", 5, 5),
    ]  # fmt: skip

    def lives() -> bool:
        run(work)
        work.tidied()
        return control.status()[0].live

    in_time(lives)


def test_a_late_commit_is_not_passed_over(writer: Writer) -> None:
    work = part()
    run(work)
    late = Writer(dict(wiring.conninfo("default")))
    late.append("late", 1)
    for number in range(20):
        writer.append(f"a{number}", 1)
        writer.commit()
    run(work)
    assert ("late", 1, 1) not in log()
    assert len(log()) == 20
    late.commit()
    run(work)
    is_exact()
    late.close()


def test_pages_end_between_transactions(writer: Writer) -> None:
    work = part(events=3)
    run(work)
    late = Writer(dict(wiring.conninfo("default")))
    late.append("late", 1)
    for number in range(30):
        writer.append_together([f"a{number % 7}", f"b{number % 5}"], number)
        writer.commit()
    assert work.take(0, 127).more
    late.commit()
    run(work)
    is_exact()
    late.close()


def test_parts_share_the_work_and_their_number_changes(writer: Writer) -> None:
    work = part(events=5)
    for number in range(40):
        writer.append_together([f"a{number}", f"b{number % 9}"], number)
        writer.commit()
    work.take(0, 63)  # the fill is divided under way
    for first, last in ((0, 31), (32, 63), (64, 127)):
        run(work, first, last)
    for number in range(40):
        writer.append_together([f"a{number}", f"c{number % 9}"], number)
        writer.commit()
    run(work, 32, 63)
    run(work, 0, 127)
    is_exact()

    def is_joined() -> bool:
        writer.append("a1", 1)
        writer.commit()
        run(work, 0, 127)
        return len(control.status()[0].parts) == 1

    in_time(is_joined)
    is_exact()


def test_an_entity_that_fails_waits_and_others_go_on(writer: Writer) -> None:
    work = part(failures=2, back_off=0.0)
    run(work)
    Payments.bad = {13}
    writer.append("a", 1, 13, 3)
    writer.append("b", 1, 2)
    writer.commit()
    with pytest.raises(HandlerFailed):
        work.take(0, 127)
    assert log() == []
    assert work.take(0, 127, careful=True).failed == 1
    assert log() == [("a", 1, 1), ("b", 1, 1), ("b", 2, 2)]
    writer.append("a", 4)
    writer.commit()
    run(work, careful=True)
    (held,) = control.held("projected.Payments", 1)
    assert (held.entity, held.number, held.parked, held.failures) == ("a", 2, True, 2)
    assert "ValueError" in held.error
    with pytest.raises(ProjectionError, match="waits for an operator"):
        Payments.caught_up_sync(Account.ref("a"))
    Payments.bad = set()
    assert control.retry("projected.Payments", 1, "projected.Account", "a")
    run(work)
    is_exact()
    writer.append("a", 5)
    writer.commit()
    run(work)
    is_exact()
    work.tidied()
    assert control.held("projected.Payments", 1) == []


def test_an_event_of_a_newer_release_waits_for_code_that_knows_it(writer: Writer) -> None:
    """Nothing of this code handles it, and nothing tells that a newer one does not."""
    work = part(failures=2, back_off=0.0)
    run(work)
    writer.append("a", 1)
    writer.append("a", 2, name="Withdrawn")
    writer.append("a", 3)
    writer.append("b", 4)
    writer.commit()
    with pytest.raises(HandlerFailed, match="unknown event 'Withdrawn'"):
        work.take(0, 127)
    run(work, careful=True)
    run(work, careful=True)
    assert log() == [("a", 1, 1), ("b", 1, 4)]
    (held,) = control.held("projected.Payments", 1)
    assert (held.entity, held.number, held.failures, held.parked) == ("a", 2, 2, True)
    run(part(failures=2))
    (held,) = control.held("projected.Payments", 1)
    assert (held.failures, held.parked) == (2, True), "another worker of this release has one attempt"
    with registry.isolated(), projections.isolated():
        registry.discard(registry.get("projected.Account"))
        run(part(_newer_payments()))
    assert log() == [("a", 1, 1), ("b", 1, 4), ("a", 2, -2), ("a", 3, 3)]


def test_a_worker_that_begins_leaves_what_failed_otherwise_parked(writer: Writer) -> None:
    work = part(failures=1)
    run(work)
    Payments.bad = {13}
    writer.append("a", 13)
    writer.commit()
    run(work, careful=True)
    Payments.bad = set()
    run(part())
    assert [each.parked for each in control.held("projected.Payments", 1)] == [True]


def _newer_payments() -> type[Projection]:
    """Return the projection as the newer release has it."""

    @event
    class Withdrawn:
        amount: int

    class NewAccount(EventSourced, name="projected.Account"):
        @applies(Paid)
        def on_paid(self, happened: Paid) -> None:
            """Keep no state."""

        @applies(Withdrawn)
        def on_withdrawn(self, happened: Withdrawn) -> None:
            """Keep no state."""

    class NewPayments(Payments, name="projected.Payments"):
        source = NewAccount  # type: ignore[assignment]

        @on(Withdrawn)
        def withdrawn(self, happened: Happened[Withdrawn]) -> None:
            with connection.cursor() as cursor:
                cursor.execute(
                    "INSERT INTO projected (entity, seq, amount) VALUES (%s, %s, %s)",
                    [happened.entity_id, happened.number, -happened.event.amount],
                )

    return NewPayments


def test_an_operator_skips_an_event(writer: Writer) -> None:
    work = part(failures=1)
    run(work)
    Payments.bad = {13}
    writer.append("a", 1, 13, 3)
    writer.commit()
    run(work, careful=True)
    assert not control.skip("projected.Payments", 1, "projected.Account", "a", 3)
    assert control.skip("projected.Payments", 1, "projected.Account", "a", 2)
    writer.append("a", 4)
    writer.commit()
    run(work)
    assert log() == [("a", 1, 1), ("a", 3, 3), ("a", 4, 4)]
    Payments.caught_up_sync(Account.ref("a"), timeout=0)


def test_paused_it_handles_nothing(writer: Writer) -> None:
    work = part()
    run(work)
    control.pause("projected.Payments", 1)
    writer.append("a", 1)
    writer.commit()
    assert work.take(0, 127).paused
    assert control.status()[0].parts[0].behind_events == 1
    control.resume("projected.Payments", 1)
    run(work)
    is_exact()


def test_reset_fills_in_place(writer: Writer) -> None:
    work = part()
    for number in range(20):
        writer.append(f"a{number}", 1, 2)
    writer.commit()
    run(work)
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO projected (entity, seq, amount) VALUES ('wrong', 1, 1)")
    Payments.reset()
    writer.append("a1", 3)
    writer.commit()
    run(work)
    is_exact()


def erase(entity: str, kept: int = 0) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT id FROM sharding_type WHERE name = 'projected.Account'")
        ((type_id,),) = cursor.fetchall()
        cursor.execute(
            QUERIES["erase"].decode(),
            {
                "type_id": type_id, "entity": entity, "shard": 0, "shards": [0], "epoch": 1,
                "at_most": 2 if kept else 1000, "events_before": 0, "snapshots_before": 0, "by": "a test",
            },
        )  # fmt: skip


def test_an_erased_entity_is_told_and_lives_again(writer: Writer) -> None:
    work = part()
    run(work)
    writer.append("a", 1, 2, 3)
    writer.append("b", 1)
    writer.commit()
    run(work)
    writer.append("a", 4)
    writer.commit()
    erase("a")
    writer.append("a", 10, 20, first=1)
    writer.commit()
    run(work)
    assert log() == [("b", 1, 1), ("a", 1, 10), ("a", 2, 20)]
    writer.append("c", 1)
    writer.commit()
    erase("c")
    run(work)
    assert log() == [("b", 1, 1), ("a", 1, 10), ("a", 2, 20)]


def shows(entity: str, number: int | None = None) -> bool:
    """Whether the projection has caught up with an entity."""
    try:
        Payments.caught_up_sync(Account.ref(entity), number, timeout=0)
    except AskTimeout:
        return False
    return True


def test_who_waits_for_an_event_to_come_waits(writer: Writer) -> None:
    work = part()
    run(work)
    assert shows("a")
    assert not shows("a", 1)
    writer.append("a", 1)
    writer.commit()
    run(work)
    assert shows("a", 1)
    assert not shows("a", 2)


def test_who_waits_sees_that_an_entity_was_erased(writer: Writer) -> None:
    work = part()
    run(work)
    writer.append("a", 1, 2)
    writer.commit()
    run(work)
    assert shows("a")
    erase("a")
    assert not shows("a")
    run(work)
    assert shows("a")
    assert log() == []


def test_who_waits_sees_events_that_were_written_behind_a_savepoint(writer: Writer) -> None:
    """A snapshot lists the transaction, and not the part of it that has written the row."""
    work = part()
    run(work)
    late = Writer(dict(wiring.conninfo("default")))
    late.connection.execute("CREATE TEMPORARY TABLE earlier ON COMMIT DROP AS SELECT 1")
    late.connection.execute("SAVEPOINT open")
    late.append("a", 1)
    writer.append("b", 1)
    writer.commit()
    run(work)
    late.commit()
    late.close()
    assert not shows("a")
    run(work)
    assert shows("a")
    is_exact()


def test_who_waits_sees_events_whose_rows_were_copied_since(writer: Writer) -> None:
    """As into a partition: nothing new is told of them, so the position stays where it is."""
    work = part()
    run(work)
    writer.append("a", 1)
    writer.commit()
    run(work)
    value("UPDATE sharding_event SET name = name RETURNING 1")
    assert shows("a")
    writer.append("a", 2)
    writer.commit()
    value("UPDATE sharding_event SET name = name RETURNING 1")
    assert not shows("a")
    run(work)
    assert shows("a", 1)
    assert shows("a")


def test_events_that_were_deleted_by_hand_park_their_entity(writer: Writer) -> None:
    work = part()
    run(work)
    writer.append("a", 1, 2, 3)
    writer.append("b", 1)
    writer.commit()
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM sharding_event WHERE entity = 'a' AND seq = 2")
    run(work)
    (held,) = control.held("projected.Payments", 1)
    assert (held.entity, held.number, held.parked) == ("a", 2, True)
    assert ("b", 1, 1) in log()


def trim(entity: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT id FROM sharding_type WHERE name = 'projected.Account'")
        ((type_id,),) = cursor.fetchall()
        cursor.execute(
            QUERIES["trim_events"].decode(),
            {"type_id": type_id, "entity": entity, "before": 100, "window": 0, "limit": 100, "keep": 1},
        )
        return int(cursor.fetchall()[0][0])


def test_what_a_projection_has_not_seen_is_not_trimmed(writer: Writer) -> None:
    work = part()
    run(work)
    writer.append("a", 1, 2, 3)
    writer.commit()
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO sharding_snapshot (type_id, entity, seq, shard, epoch, state)"
            " SELECT id, 'a', 3, 0, 1, '{}' FROM sharding_type WHERE name = 'projected.Account'"
        )
    assert trim("a") == 0
    run(work)

    def is_trimmed() -> bool:
        writer.append("b", 1)
        writer.commit()
        run(work)
        return trim("a") == 2

    in_time(is_trimmed)
    run(work)
    assert [each[:2] for each in log() if each[0] == "a"] == [("a", 1), ("a", 2), ("a", 3)]
    control.remove("projected.Payments", 1)
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM sharding_change")
        assert cursor.fetchall() == [(0,)]
        cursor.execute("SELECT followed FROM sharding_shard")
        assert cursor.fetchall() == [(False,)]


def test_changes_are_tidied_once_all_positions_have_passed_them(writer: Writer) -> None:
    work = part()
    run(work)
    for _ in range(5):
        writer.append("a", 1)
        writer.commit()
    work.tidied()
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM sharding_change")
        assert cursor.fetchall() == [(5,)]

        def are_gone() -> bool:
            writer.append("a", 1)
            writer.commit()
            run(work)
            work.tidied()
            cursor.execute("SELECT count(*) FROM sharding_change")
            return bool(cursor.fetchall()[0][0] <= 1)

        in_time(are_gone)


def beside(work: DjangoPart, lock: str, change: Callable[[Any], None]) -> Outcome:
    """Let a turn wait for the lock of another session, which makes a change and commits."""
    other = Writer(dict(wiring.conninfo("default")))
    other.connection.execute(lock)
    found: list[Outcome] = []

    def take() -> None:
        try:
            found.append(work.take(0, 127))
        finally:
            connection.close()

    thread = threading.Thread(target=take)
    thread.start()
    in_time(lambda: waits_for_a_lock())
    change(other.connection)
    other.commit()
    other.close()
    thread.join()
    return found[0]


def value(sql: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchall()[0][0]


def waits_for_a_lock() -> bool:
    """Tell whether a session of this database waits for a lock."""
    # In a transaction the view of sessions stays that of the first look.
    value("SELECT pg_stat_clear_snapshot()")
    return bool(value(WAITS_FOR_A_LOCK))


def test_a_turn_that_has_waited_knows_who_waits_by_then(writer: Writer) -> None:
    """Another worker of the same slices has failed at an event meanwhile."""
    work = part()
    run(work)
    writer.append("a", 1)
    writer.commit()

    def fails(other: Any) -> None:
        other.execute(
            "INSERT INTO sharding_held (projection_id, type_id, entity, slice, next, parked)"
            " SELECT r.id, r.type_ids[1], 'a', %s, 1, true FROM sharding_projection r",
            [slice_of("a")],
        )
        other.execute("UPDATE sharding_position SET turn = turn + 1, position = pg_current_snapshot()")
        writer.append("a", 2)
        writer.commit()

    beside(work, "SELECT FROM sharding_position FOR UPDATE", fails)
    run(work)
    assert log() == []
    assert control.retry("projected.Payments", 1, "projected.Account", "a")
    run(work)
    is_exact()


def test_a_turn_that_has_waited_twice_knows_who_waits_by_then(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The position was divided meanwhile, and the turn of the other part has failed at an event."""
    work = part()
    run(work)
    high = next(each for each in (f"e{number}" for number in range(100)) if slice_of(each) >= 64)
    writer.append(high, 1)
    writer.commit()
    other, real, looks = Writer(dict(wiring.conninfo("default"))), projecting._Shell._rows, 0

    def fails() -> None:
        in_time(waits_for_a_lock)
        other.connection.execute(
            "INSERT INTO sharding_held (projection_id, type_id, entity, slice, next, parked)"
            " SELECT r.id, r.type_ids[1], %s, %s, 1, true FROM sharding_projection r",
            [high, slice_of(high)],
        )
        other.connection.execute(
            "UPDATE sharding_position SET turn = turn + 1, position = pg_current_snapshot()"
            " WHERE first_slice = 64"
        )
        writer.append(high, 2)
        writer.commit()
        other.commit()
        connection.close()

    thread = threading.Thread(target=fails)

    def rows(self: Any, name: str, params: dict[str, Any]) -> list[Any]:
        nonlocal looks
        looks += name == "projection_take"
        if name == "projection_take" and looks == 2:
            other.connection.execute("SELECT FROM sharding_position WHERE first_slice = 64 FOR UPDATE")
            thread.start()
        return real(self, name, params)

    def divides(session: Any) -> None:
        session.execute("UPDATE sharding_position SET last_slice = 63, turn = turn + 1")
        session.execute(
            "INSERT INTO sharding_position (projection_id, first_slice, last_slice, position, turn)"
            " SELECT projection_id, 64, 127, position, turn FROM sharding_position"
        )

    monkeypatch.setattr(projecting._Shell, "_rows", rows)
    beside(work, "SELECT FROM sharding_position FOR UPDATE", divides)
    thread.join()
    other.close()
    assert log() == []
    assert looks == 3
    assert control.retry("projected.Payments", 1, "projected.Account", high)
    run(work)
    is_exact()


def beside_a_division(
    order: Callable[[], object], begin: Callable[[Callable[[], None]], AbstractContextManager[None]]
) -> list[Any]:
    """Give an order that waits for a turn, which divides its position; return the positions that
    another turn could take when the order does its work.
    """
    turn, other = (Writer(dict(wiring.conninfo("default"))) for _ in range(2))
    turn.connection.execute("SELECT FROM sharding_position FOR UPDATE")
    free: list[Any] = []

    def look() -> None:
        found = other.connection.execute("SELECT first_slice FROM sharding_position FOR UPDATE SKIP LOCKED")
        free.append(sorted(found.fetchall()))
        other.commit()

    def ordered() -> None:
        try:
            order()
        finally:
            connection.close()

    with begin(look):
        thread = threading.Thread(target=ordered)
        thread.start()
        in_time(waits_for_a_lock)
        turn.connection.execute("UPDATE sharding_position SET last_slice = 63")
        turn.connection.execute(
            "INSERT INTO sharding_position (projection_id, first_slice, last_slice, position)"
            " SELECT projection_id, 64, 127, position FROM sharding_position"
        )
        turn.commit()
        thread.join()
    turn.close()
    other.close()
    (found,) = free
    return list(found)


def test_a_reset_waits_for_a_position_that_was_divided_off_while_it_waited(writer: Writer) -> None:
    """Else the turn of another part writes rows and a position beside the reset."""
    run(part())

    @contextmanager
    def in_clear(look: Callable[[], None]) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Payments, "clear", lambda _: look())
            yield

    assert beside_a_division(Payments.reset, in_clear) == []


def test_a_reset_clears_nothing_of_a_version_that_is_removed_meanwhile(writer: Writer) -> None:
    """A node makes it again at once, and would not fill again the rows that are cleared then."""
    work = part()
    writer.append("a", 1)
    writer.commit()
    run(work)
    removal = Writer(dict(wiring.conninfo("default")))
    removal.connection.execute("DELETE FROM sharding_projection")
    removal.connection.execute("DELETE FROM sharding_position")
    refused: list[ProjectionError] = []

    def reset() -> None:
        try:
            Payments.reset()
        except ProjectionError as error:
            refused.append(error)
        finally:
            connection.close()

    thread = threading.Thread(target=reset)
    thread.start()
    in_time(waits_for_a_lock)
    removal.commit()
    removal.close()
    thread.join()
    assert [each.code for each in refused] == ["unknown_projection"]
    assert log() == [("a", 1, 1)]
    assert value("SELECT count(*) FROM sharding_position") == 0


@pytest.mark.parametrize(("entity", "others"), [("a", []), ("b", [(64,)])])
def test_a_retry_waits_for_the_position_that_has_its_slice_by_then(
    writer: Writer, entity: str, others: list[Any]
) -> None:
    """Else a turn that is trying the entity writes its own outcome over the retry's."""
    run(part())
    real = control._rows

    @contextmanager
    def at_the_retry(look: Callable[[], None]) -> Iterator[None]:
        def rows(query: str, params: dict[str, Any]) -> list[Any]:
            if query == "projection_retry":
                look()
            return real(query, params)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(control, "_rows", rows)
            yield

    def retry() -> None:
        control.retry("projected.Payments", 1, "projected.Account", entity)

    assert beside_a_division(retry, at_the_retry) == others


def test_a_worker_of_former_sources_does_not_go_on_after_a_reset(writer: Writer) -> None:
    work = part()
    writer.append("a", 1)
    writer.commit()
    run(work)
    with connection.cursor() as cursor:
        # The code of another process has one source more.
        cursor.execute("UPDATE sharding_projection SET type_ids = type_ids || 99")
    writer.append("a", 2)
    writer.commit()
    with pytest.raises(NotReady, match="other types"):
        work.take(0, 127)
    with pytest.raises(ProjectionError, match="follows other types"):
        work.take(0, 127)
    assert log() == [("a", 1, 1)]


def test_a_skipped_event_stays_skipped_whatever_is_under_way(writer: Writer) -> None:
    """A turn tries the event again at the moment when an operator skips it."""
    work = part(back_off=0.0)
    run(work)
    Payments.bad = {13}
    writer.append("a", 1, 13, 3)
    writer.commit()
    with pytest.raises(HandlerFailed):
        work.take(0, 127)
    assert work.take(0, 127, careful=True).failed == 1
    skipped: list[bool] = []

    def skip() -> None:
        try:
            skipped.append(control.skip("projected.Payments", 1, "projected.Account", "a", 2))
        finally:
            connection.close()

    def fails(_: object) -> None:
        thread = threading.Thread(target=skip)
        thread.start()
        in_time(lambda: bool(skipped) or waits_for_a_lock())
        threads.append(thread)
        raise ValueError("no")

    threads: list[threading.Thread] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Payments, "paid", lambda _, happened: fails(happened))
        assert work.take(0, 127, careful=True).failed == 1
    threads[0].join()
    assert skipped == [True]
    run(work)
    assert log() == [("a", 1, 1), ("a", 3, 3)]


def test_appends_go_on_while_one_that_does_not_end_is_waited_for(writer: Writer) -> None:
    """A new projection holds the rows of shards while it waits for that of another one."""
    value(
        "INSERT INTO sharding_shard (type_id, shard, epoch, home, step)"
        " SELECT type_id, 1, 1, 'n', 'home' FROM sharding_shard RETURNING 1"
    )
    hangs = Writer(dict(wiring.conninfo("default")))
    hangs.connection.execute("SELECT FROM sharding_shard WHERE shard = 1 FOR SHARE")
    refused: list[NotReady] = []
    work = part()

    def make() -> None:
        try:
            work._tended(work.facts)
        except NotReady as error:
            refused.append(error)
        finally:
            connection.close()

    thread = threading.Thread(target=make)
    thread.start()
    in_time(waits_for_a_lock)
    # The new projection gives up in a quarter of that.
    writer.connection.execute(f"SET lock_timeout = '{20 * SLACK:g}s'")
    try:
        writer.append("a", 1)
        thread.join(20 * SLACK)
    finally:
        writer.commit()
        hangs.close()
        thread.join()
    assert len(refused) == 1
    run(work)
    is_exact()


def test_a_type_is_followed_whatever_is_removed_beside(writer: Writer) -> None:
    """Another projection of the type is being removed while this one is made."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE sharding_type SET followed = true; UPDATE sharding_shard SET followed = true")
    other = Writer(dict(wiring.conninfo("default")))
    other.connection.execute("SELECT FROM sharding_type FOR UPDATE")
    other.connection.execute("UPDATE sharding_type SET followed = false")
    other.connection.execute("UPDATE sharding_shard SET followed = false")
    work = part()
    made: list[bool] = []

    def make() -> None:
        try:
            work.facts()
            made.append(True)
        except NotReady:
            made.append(False)
        finally:
            connection.close()

    thread = threading.Thread(target=make)
    thread.start()
    in_time(lambda: bool(made) or waits_for_a_lock())
    other.commit()
    other.close()
    thread.join()
    work.facts()
    assert value("SELECT bool_and(followed) FROM sharding_type WHERE name = 'projected.Account'")
    writer.append("a", 1)
    writer.commit()
    run(work)
    is_exact()


def test_a_reset_with_fewer_sources_lets_the_others_go(writer: Writer) -> None:
    work = part()
    run(work)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO sharding_type (name, kind, number_of_shards, extractor, hash_version, role, store_mode, followed)"
            " VALUES ('projected.Former', 'event sourced', 1, '', 'crc32-1', '', 'postgres', true) RETURNING id"
        )
        ((former,),) = cursor.fetchall()
        cursor.execute("UPDATE sharding_projection SET type_ids = type_ids || %s::integer", [former])
    Payments.reset()
    assert not value("SELECT followed FROM sharding_type WHERE name = 'projected.Former'")
    assert value("SELECT followed FROM sharding_type WHERE name = 'projected.Account'")


def test_a_reset_on_another_server_leaves_the_changes_of_others(
    writer: Writer, later: type[Projection]
) -> None:
    """After pg_upgrade one is reset, and another goes on."""
    work, goes_on = part(), part(later)
    run(work)
    run(goes_on)
    writer.append("a", 1)
    writer.commit()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE sharding_projection SET server = 'another'")
        cursor.execute(
            "INSERT INTO sharding_change (type_id, xid, events, entities, slices, firsts, lasts)"
            " SELECT type_id, '999999999999', 1, '{b}', '{1}', '{1}', '{1}' FROM sharding_change"
        )
    Payments.reset()
    control.accept_server("projected.Payments", 2)
    run(goes_on)
    assert log() == [("a", 1, 1)]
    assert value("SELECT count(*) FROM sharding_change WHERE xid = '999999999999'") == 0


@pytest.fixture
def later() -> Iterator[type[Projection]]:
    """Version 2 of the projection."""
    with projections.isolated():

        class Later(Payments, name="projected.Payments"):
            version = 2

        yield Later


def test_a_version_that_is_taken_back_leaves_its_place_to_the_former_one(
    writer: Writer, later: type[Projection]
) -> None:
    works = [part(), part(later)]
    for number, work in enumerate(works, 1):

        def lives(work: DjangoPart = work, number: int = number) -> bool:
            run(work)
            work.tidied()
            return Payments.live_version() == number

        in_time(lives)
    control.remove("projected.Payments", 2)
    assert Payments.live_version() == 1
    control.remove("projected.Payments", 1)
    assert Payments.live_version() is None


def test_a_former_version_that_is_filled_later_takes_no_place(
    writer: Writer, later: type[Projection]
) -> None:
    """A node with former code has made it again, or its fill has taken longer."""
    second, first = part(later), part()

    def are_through(work: DjangoPart, number: int) -> bool:
        run(work)
        work.tidied()
        return bool(value("SELECT count(live_at) FROM sharding_projection") == number)

    in_time(lambda: are_through(second, 1))
    in_time(lambda: are_through(first, 2))
    assert [each.live for each in control.status()] == [False, True]
    assert Payments.live_version() == 2
    control.remove("projected.Payments", 2)
    assert Payments.live_version() == 1


def test_events_that_a_policy_hides_are_not_passed_over(writer: Writer) -> None:
    writer.append("a", 1)
    writer.commit()
    work = part()
    work.facts()
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE ROLE sharding_guest; GRANT ALL ON ALL TABLES IN SCHEMA public TO sharding_guest;"
            " GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO sharding_guest;"
            " ALTER TABLE sharding_event ENABLE ROW LEVEL SECURITY; SET ROLE sharding_guest"
        )
        try:
            with pytest.raises(NotReady, match=r"sharding\.E017"):
                work.take(0, 127)
        finally:
            cursor.execute(
                "RESET ROLE; ALTER TABLE sharding_event DISABLE ROW LEVEL SECURITY;"
                " DROP OWNED BY sharding_guest; DROP ROLE sharding_guest"
            )
    run(work)
    is_exact()
    assert log() == [("a", 1, 1)]


@pytest.mark.parametrize("use_tz", [True, False])
def test_an_event_has_its_moment_whatever_the_projects_time_zone(
    writer: Writer, settings: Any, use_tz: bool
) -> None:
    """In the hour that clocks show twice, too."""
    settings.USE_TZ, settings.TIME_ZONE = use_tz, "Europe/Berlin"
    times = [datetime(2026, 10, 25, 0, 30, tzinfo=UTC), datetime(2026, 10, 25, 1, 10, tzinfo=UTC)]
    seen: list[datetime] = []
    with projections.isolated():

        class Times(Projection, name="projected.Times"):
            source = Account

            @on(Paid)
            def paid(self, happened: Happened[Paid]) -> None:
                seen.append(happened.at)

        writer.append("a", 1, 2)
        for seq, at in enumerate(times, 1):
            writer.connection.execute("UPDATE sharding_event SET at = %s WHERE seq = %s", [at, seq])
        writer.commit()
        assert run(part(Times)) == 2
    assert seen == times
