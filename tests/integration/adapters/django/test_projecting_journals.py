"""Projections of entities in two journals: each event once, in order, none skipped. What is deleted
in a further journal was passed, and a journal that is away stops its own positions only.
"""

import random
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, OperationalError, connection, connections

from sharding_app import wiring
from sharding_app.adapters.django import further_journals
from sharding_app.adapters.django import projections as control
from sharding_app.adapters.django.database import run_query
from sharding_app.adapters.django.projecting import DjangoPart
from sharding_app.entities.happened import Happened
from sharding_app.entities.projections import Projection, on, projections
from sharding_app.errors import AskTimeout, ProjectionError
from sharding_app.http.metrics import projection_families
from sharding_app.operations.projections import look
from sharding_app.ports.projections import HandlerFailed, NotReady
from sharding_app.runtime.telemetry.exposition import Sample
from tests.conftest import ChildEnvironment
from tests.integration.adapters.django.projected import Account, Paid, Payments, Writer, log, run
from tests.integration.adapters.django.test_projecting import in_time
from tests.integration.adapters.django.two_journals import HERE, NAME, SECOND, THERE, Journals, part
from tests.integration.adapters.django.two_journals import journals as two_journals
from tests.integration.adapters.django.two_journals import second as second_database
from tests.support.live import ROOT, until

pytestmark = pytest.mark.django_db(transaction=True)
journals = two_journals
second = second_database


@pytest.fixture
def parts(journals: Journals) -> list[DjangoPart]:
    """The part of each journal, whose positions have begun."""
    made = [part(each) for each in ("", SECOND)]
    for each in made:
        run(each)
    return made


def is_exact(journals: Journals) -> None:
    """The log has each event of both journals once, and each entity's in order."""
    numbers: dict[str, list[int]] = {}
    for entity, seq, _ in log():
        numbers.setdefault(entity, []).append(seq)
    assert all(found == sorted(found) for found in numbers.values())
    assert sorted((entity, seq) for entity, found in numbers.items() for seq in found) == journals.stored()


def append(journals: Journals, *amounts: int) -> None:
    """Append to each entity in its journal."""
    for writer, ids in ((journals.here, HERE), (journals.there, THERE)):
        for each in ids:
            writer.append(each, *amounts)
        writer.commit()


def test_a_fill_and_what_comes_after_it(journals: Journals) -> None:
    append(journals, 1, 2, 3)
    works = [part(each, events=4, chunk=3, keys=3) for each in ("", SECOND)]
    for each in works:
        each.take(0, 127)
    append(journals, 4)
    for each in works:
        run(each)
    is_exact(journals)
    append(journals, 5, 6)
    for each in works:
        run(each)
    is_exact(journals)

    def lives() -> bool:
        for each in works:
            run(each)
            each.tidied()
        return control.status()[0].live

    in_time(lives)


def test_a_fill_leaves_out_copies_of_entities_that_lie_in_another_journal(journals: Journals) -> None:
    """One that a shard has left behind, and one of a shard that is on its way there."""
    append(journals, 1, 2)
    journals.here.append(THERE[0], 1, first=1)
    journals.there.append(HERE[0], 1, first=1)
    for each in (journals.here, journals.there):
        each.commit()
    for name in ("", SECOND):
        run(part(name, keys=3))
    assert sorted((entity, seq) for entity, seq, _ in log()) == sorted(
        (entity, seq) for entity in (*HERE, *THERE) for seq in (1, 2)
    )


def test_a_fill_waits_until_a_coordinator_has_read_which_shards_lie_in_further_journals(
    journals: Journals,
) -> None:
    """A failover may have lost the row of a shard: its events are no copy, and a fill that leaves
    them out skips them.
    """
    append(journals, 1, 2)
    work = part(SECOND)
    execute = connection.cursor().execute
    execute("DELETE FROM sharding_shard WHERE shard = 1")
    execute(
        "INSERT INTO sharding_journal (name, place) VALUES (%s, 'there') ON CONFLICT DO NOTHING", [SECOND]
    )
    execute("INSERT INTO sharding_coordinator (term, lineage) VALUES (1, 'former/1')")
    with pytest.raises(NotReady, match=f"not read yet which shards lie in the journals {SECOND}"):
        run(work)
    assert log() == []
    execute(
        "INSERT INTO sharding_shard (type_id, shard, epoch, step, journal) VALUES (%s, 1, 1, 'stopped', %s)",
        [journals.type_id, SECOND],
    )
    execute("DELETE FROM sharding_coordinator")
    run(work)
    assert {(entity, seq) for entity, seq, _ in log()} == {(each, seq) for each in THERE for seq in (1, 2)}


def test_a_page_of_a_fill_counts_in_its_journal_alone(journals: Journals) -> None:
    append(journals, 1)
    first, second = part("", keys=1), part(SECOND)
    assert second.take(0, 127).filling
    journals.there.append(THERE[0], 2)
    journals.there.commit()
    # Pages of the other journal end behind this entity, and their views see the event.
    run(first)
    run(second)
    is_exact(journals)


def test_a_version_lives_once_all_journals_are_filled(journals: Journals) -> None:
    append(journals, 1)
    first = part("")
    run(first)

    def is_through() -> bool:
        run(first)
        with connection.cursor() as cursor:
            cursor.execute("SELECT bool_and(fill_type IS NULL AND fill_until IS NULL) FROM sharding_position")
            return bool(cursor.fetchall()[0][0])

    in_time(is_through)
    first.tidied()
    assert not control.status()[0].live
    second = part(SECOND)

    def lives() -> bool:
        run(second)
        first.tidied()
        return control.status()[0].live

    in_time(lives)
    is_exact(journals)


def test_a_late_commit_there_is_not_passed_over(journals: Journals, parts: list[DjangoPart]) -> None:
    append(journals, 1)
    late = Writer(journals.params)
    late.append(THERE[0], 2)
    for number in range(10):
        journals.there.append(THERE[1], number)
        journals.there.commit()
    for each in parts:
        run(each)
    assert [seq for entity, seq, _ in log() if entity == THERE[0]] == [1]
    late.commit()
    late.close()
    for each in parts:
        run(each)
    is_exact(journals)


def test_parts_of_a_journal_share_the_work(journals: Journals, parts: list[DjangoPart]) -> None:
    append(journals, 1)
    work = parts[1]
    for first, last in ((0, 31), (32, 63), (64, 127)):
        run(work, first, last)
        append(journals, 2)
    run(parts[0])
    run(work)
    is_exact(journals)


def test_a_journal_that_is_named_later_is_filled(journals: Journals) -> None:
    """Its events were written before a projection knew of it."""
    append(journals, 1, 2)
    first = part("")
    run(first)
    assert {each[0] for each in log()} == set(HERE)
    append(journals, 3)
    run(part(SECOND))
    run(first)
    is_exact(journals)


def test_a_shard_that_is_taken_later_is_followed(journals: Journals) -> None:
    run(part(SECOND))
    assert journals.value("SELECT count(*) FROM sharding_shard") == 0
    journals.there.append(THERE[0], 1)
    journals.there.commit()
    assert journals.value("SELECT bool_and(followed) FROM sharding_shard")
    assert journals.value("SELECT count(*) FROM sharding_change") == 1


def waits_there(journals: Journals) -> bool:
    return bool(
        journals.value(
            "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid)"
            " WHERE NOT l.granted AND a.datname = current_database()"
        )
    )


@pytest.mark.parametrize("known", [True, False], ids=["known", "new"])
def test_a_take_beside_the_beginning_is_followed(journals: Journals, known: bool) -> None:
    """The take waits for the beginning, and the shard's row says so. The type's row may be new."""
    name = "projected.Account"
    make = "INSERT INTO sharding_type (id, name, kind, number_of_shards, extractor, hash_version, role, store_mode)"
    make += " VALUES (%s, %s, '', 1, '', '', '', '')"
    if known:
        journals.value(make, journals.type_id, name)
    beginning = psycopg.connect(**journals.params)
    if not known:
        beginning.execute(make.encode(), [journals.type_id, name])
    beginning.execute("SELECT sharding_follow_v1(ARRAY[%s], true)", [journals.type_id])
    taking = threading.Thread(target=journals.take)
    taking.start()
    until(lambda: waits_there(journals), 20.0, "the take waits")
    beginning.commit()
    beginning.close()
    taking.join()
    assert journals.value("SELECT array_agg(followed) FROM sharding_shard") == [True, True]


def test_a_shard_that_was_copied_here_is_followed_from_its_take_on(journals: Journals) -> None:
    """While it was copied, its row said that it is not."""
    journals.take()
    journals.value("SELECT sharding_follow_v1(ARRAY[%s], true)", journals.type_id)
    journals.value("UPDATE sharding_shard SET followed = false WHERE shard = 1")
    journals.take()
    assert journals.value("SELECT array_agg(followed) FROM sharding_shard") == [True, True]


def test_a_beginning_beside_a_take_waits_for_it(journals: Journals) -> None:
    """The shard's row is there, and no other session sees it yet."""
    take = "SELECT sharding_take_v1(%s, 'projected.Account', 2, 0, 0, 0, %s::integer[], %s::bigint[], 'n')"
    journals.value(take, journals.type_id, [], [])
    taking = psycopg.connect(**journals.params)
    taking.execute(take.encode(), [journals.type_id, [0], [1]])
    beginning = threading.Thread(
        target=journals.value, args=("SELECT sharding_follow_v1(ARRAY[%s], true)", journals.type_id)
    )
    beginning.start()
    until(lambda: waits_there(journals) or not beginning.is_alive(), 20.0, "it waits")
    taking.commit()
    taking.close()
    beginning.join()
    assert journals.value("SELECT array_agg(followed) FROM sharding_shard") == [True]


def test_an_entity_that_fails_there_waits_there(journals: Journals) -> None:
    works = [part(each, failures=1) for each in ("", SECOND)]
    for each in works:
        run(each)
    Payments.bad = {13}
    journals.here.append(HERE[0], 13)
    journals.here.commit()
    journals.there.append(THERE[0], 1, 13, 3)
    journals.there.append(THERE[1], 1)
    journals.there.commit()
    for each in works:
        with pytest.raises(HandlerFailed):
            each.take(0, 127)
        assert each.take(0, 127, careful=True).failed == 1
    held = {each.entity: (each.number, each.parked, each.journal) for each in control.held(NAME, 1)}
    assert held == {HERE[0]: (1, True, ""), THERE[0]: (2, True, SECOND)}
    with pytest.raises(ProjectionError, match="waits for an operator"):
        Payments.caught_up_sync(Account.ref(THERE[0]))
    assert [(each.journal, each.parked) for each in control.status()[0].parts] == [("", 1), (SECOND, 1)]
    Payments.bad = set()
    assert control.retry(NAME, 1, "projected.Account", THERE[0])
    run(works[0])
    assert [seq for entity, seq, _ in log() if entity == THERE[0]] == [1]
    run(works[1])
    assert [seq for entity, seq, _ in log() if entity == THERE[0]] == [1, 2, 3]
    assert [each.entity for each in control.held(NAME, 1)] == [HERE[0]]
    assert control.retry(NAME, 1, "projected.Account", HERE[0])
    run(works[0])
    is_exact(journals)


def test_an_operator_skips_an_event_there(journals: Journals) -> None:
    work = part(SECOND, failures=1)
    run(work)
    Payments.bad = {13}
    journals.there.append(THERE[0], 1, 13, 3)
    journals.there.commit()
    run(work, careful=True)
    assert control.skip(NAME, 1, "projected.Account", THERE[0], 2)
    run(work)
    assert [each[1] for each in log()] == [1, 3]


def shows(entity: str, number: int | None = None) -> bool:
    try:
        Payments.caught_up_sync(Account.ref(entity), number, timeout=0)
    except AskTimeout:
        return False
    return True


def test_who_waits_sees_events_whose_rows_have_moved_there(
    journals: Journals, parts: list[DjangoPart]
) -> None:
    entity = THERE[0]
    append(journals, 1)
    for each in parts:
        run(each)
    journals.value("UPDATE sharding_event SET name = name RETURNING 1")
    assert shows(entity)
    journals.there.append(entity, 2)
    journals.there.commit()
    assert shows(entity, 1)
    assert not shows(entity)
    run(parts[1])
    assert shows(entity)


def of(journals: Journals, entity: str, shard: int) -> dict[str, Any]:
    """Return how an erasure names an entity."""
    return {
        "type_id": journals.type_id, "entity": entity, "shard": shard, "shards": [shard], "epoch": 1,
        "at_most": 1000, "events_before": 0, "snapshots_before": 0, "by": "a test",
    }  # fmt: skip


def erase(journals: Journals, entity: str) -> None:
    journals.run("erase", of(journals, entity, 0))


def test_who_waits_sees_what_is_committed_there(journals: Journals, parts: list[DjangoPart]) -> None:
    entity = THERE[0]
    assert shows(entity)
    assert not shows(entity, 1)
    journals.there.append(entity, 1, 2)
    journals.there.commit()
    run(parts[0])
    assert not shows(entity)
    run(parts[1])
    assert shows(entity)
    assert shows(entity, 2)
    assert not shows(entity, 3)
    erase(journals, entity)
    assert not shows(entity)
    run(parts[1])
    assert shows(entity)
    assert log() == []


def test_an_entity_that_is_erased_there_lives_again(journals: Journals, parts: list[DjangoPart]) -> None:
    journals.there.append(THERE[0], 1, 2, 3)
    journals.there.commit()
    run(parts[1])
    erase(journals, THERE[0])
    journals.there.append(THERE[0], 10, first=1)
    journals.there.commit()
    run(parts[1])
    assert log() == [(THERE[0], 1, 10)]


def test_the_cluster_tells_nothing_of_an_erasure_elsewhere(
    journals: Journals, parts: list[DjangoPart]
) -> None:
    """The home erases messages from outside there. Its turns may come long after the next event."""
    journals.there.append(THERE[0], 1, 2, 3)
    journals.there.commit()
    run(parts[1])
    erase(journals, THERE[0])
    with connection.cursor() as cursor:
        assert run_query(cursor, "erase", of(journals, THERE[0], 1))[0][-1], "it is erased here too"
    journals.there.append(THERE[0], 10, first=1)
    journals.there.commit()
    run(parts[1])
    run(parts[0])
    assert log() == [(THERE[0], 1, 10)]


# -- Orders of operators ---------------------------------------------------------------------------


def test_a_reset_fills_all_journals(journals: Journals, parts: list[DjangoPart]) -> None:
    append(journals, 1, 2)
    for each in parts:
        run(each)
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO projected (entity, seq, amount) VALUES ('wrong', 1, 1)")
    Payments.reset()
    append(journals, 3)
    for each in reversed(parts):
        run(each)
    is_exact(journals)


def test_a_reset_needs_no_journal_that_is_down(journals: Journals, parts: list[DjangoPart]) -> None:
    append(journals, 1)
    for each in parts:
        run(each)
    with journals.down():
        Payments.reset()
        run(parts[0])
        assert {each[0] for each in log()} == set(HERE)
    in_time(lambda: is_run(parts[1]))
    is_exact(journals)


def is_run(work: DjangoPart) -> bool:
    """Take turns as a worker does, on connections that are whole."""
    try:
        work._tended(lambda: run(work))
    except NotReady:
        return False
    return True


def test_what_was_removed_is_forgotten_there(journals: Journals, parts: list[DjangoPart]) -> None:
    append(journals, 1)
    for each in parts:
        run(each)
        each.tidied()
    control.remove(NAME, 1)
    for table in (b"projection", b"position", b"following", b"secured", b"held", b"change"):
        assert journals.value((b"SELECT count(*) FROM sharding_" + table).decode()) == 0, table
    assert not journals.value("SELECT bool_or(followed) FROM sharding_shard")
    with pytest.raises(ProjectionError, match="no node has run"):
        control.remove(NAME, 1)


def test_what_was_removed_while_the_journal_was_down_is_forgotten_later(
    journals: Journals, parts: list[DjangoPart]
) -> None:
    append(journals, 1)
    for each in parts:
        run(each)
    with journals.down():
        control.remove(NAME, 1)
    assert journals.value("SELECT count(*) FROM sharding_projection") == 1
    connections[SECOND].close()
    control.remove(NAME, 1)
    assert journals.value("SELECT count(*) FROM sharding_change") == 0
    assert not journals.value("SELECT bool_or(followed) FROM sharding_shard")


def test_a_worker_forgets_what_was_removed(journals: Journals, parts: list[DjangoPart]) -> None:
    with projections.isolated():

        class Other(Payments, name="projected.Other"):
            """Beside the first one."""

        other = part(SECOND, Other)
        run(other)
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM sharding_projection WHERE name = %s", [NAME])
        other.tidied()
        assert journals.value("SELECT array_agg(name) FROM sharding_projection") == ["projected.Other"]
        assert journals.value("SELECT bool_and(followed) FROM sharding_type")


def test_another_version_of_the_name_may_begin_there(journals: Journals, parts: list[DjangoPart]) -> None:
    """The journal was down while the former one was removed, and its row bears the same name."""
    append(journals, 1)
    run(parts[1])
    with journals.down():
        control.remove(NAME, 1)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM projected")
    parts[1].forget()
    in_time(lambda: is_run(parts[1]))
    run(parts[0])
    is_exact(journals)


def test_pages_commands_and_metrics_tell_of_each_journal(
    journals: Journals, parts: list[DjangoPart], capsys: pytest.CaptureFixture[str]
) -> None:
    append(journals, 1)
    run(parts[0])

    def lines() -> dict[str, list[str]]:
        with suppress(SystemExit):
            call_command("sharding_projection", NAME)
        rows = [line.split() for line in capsys.readouterr().out.splitlines()]
        return {row[0]: row for row in rows if row and row[0] in ("JOURNAL", "default", SECOND)}

    def metrics() -> dict[str, Any]:
        (behind, *_) = projection_families(look())
        return {
            each.labels.get("journal", ""): each.value for each in behind.samples if isinstance(each, Sample)
        }

    found = lines()
    assert found["JOURNAL"][:4] == ["JOURNAL", "SLICES", "HANDLED", "BEHIND"]
    assert (found["default"][2], found[SECOND][2]) == ("8", "0")
    assert found[SECOND][3] == "8"
    assert metrics() == {"": 0, SECOND: 8}
    with journals.down():
        assert lines()[SECOND][3] == "?"
        assert metrics() == {"": 0}


# -- What is deleted there was passed --------------------------------------------------------------


def trim(journals: Journals, entity: str) -> int:
    params = {
        "type_id": journals.type_id,
        "entity": entity,
        "before": 100,
        "window": 0,
        "limit": 100,
        "keep": 1,
    }
    return int(journals.run("trim_events", params)[0][0])


def with_snapshot(journals: Journals, entity: str, *amounts: int) -> None:
    journals.there.append(entity, *amounts)
    journals.there.connection.execute(
        "INSERT INTO sharding_snapshot (type_id, entity, seq, shard, epoch, state) VALUES (%s, %s, %s, 0, 1, '{}')",
        [journals.type_id, entity, len(amounts)],
    )
    journals.there.commit()


def moves(journals: Journals, work: DjangoPart) -> None:
    """Let positions pass what was committed: earlier transactions of the server have to end."""
    journals.there.append(THERE[-1], 1)
    journals.there.commit()
    run(work)


def test_nothing_is_trimmed_there_before_a_committed_position_is_copied(
    journals: Journals, parts: list[DjangoPart]
) -> None:
    entity, work = THERE[0], parts[1]
    work.tidied()
    with_snapshot(journals, entity, 1, 2, 3)
    assert trim(journals, entity) == 0
    for _ in range(3):
        moves(journals, work)
    # The position is far ahead in the cluster's database by now: the copy is what counts here.
    assert trim(journals, entity) == 0

    def is_trimmed() -> bool:
        moves(journals, work)
        work.tidied()
        return trim(journals, entity) == 2

    in_time(is_trimmed)
    assert [seq for each, seq, _ in log() if each == entity] == [1, 2, 3]


def test_events_of_an_entity_that_waits_are_not_trimmed_there(journals: Journals) -> None:
    entity, work = THERE[0], part(SECOND, failures=1)
    run(work)
    Payments.bad = {12}
    with_snapshot(journals, entity, 11, 12, 13, 14)
    run(work, careful=True)
    for _ in range(5):
        moves(journals, work)
        work.tidied()
    trimmed = 0

    def is_trimmed() -> bool:
        nonlocal trimmed
        moves(journals, work)
        work.tidied()
        trimmed += trim(journals, entity)
        return trimmed == 1

    in_time(is_trimmed)  # the event before the one at which it waits
    Payments.bad = set()
    control.retry(NAME, 1, "projected.Account", entity)
    run(work)
    assert [seq for each, seq, _ in log() if each == entity] == [1, 2, 3, 4]


def test_with_too_many_that_wait_nothing_is_deleted_there(
    journals: Journals, parts: list[DjangoPart], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(further_journals, "HELD_COPIED", 1)
    work = part(SECOND, failures=1)
    Payments.bad = {13}
    for each in THERE[:3]:
        journals.there.append(each, 13)
    journals.there.commit()
    run(work, careful=True)
    work.tidied()
    assert journals.value("SELECT fill_type FROM sharding_position") == journals.type_id


def test_changes_there_are_tidied_behind_the_copy(journals: Journals, parts: list[DjangoPart]) -> None:
    append(journals, 1)

    def are_gone() -> bool:
        moves(journals, parts[1])
        parts[1].tidied()
        return bool(journals.value("SELECT count(*) FROM sharding_change") <= 1)

    in_time(are_gone)
    run(parts[0])
    is_exact(journals)


def test_a_copy_from_before_a_reset_changes_nothing(
    journals: Journals, parts: list[DjangoPart], monkeypatch: pytest.MonkeyPatch
) -> None:
    append(journals, 1)
    run(parts[1])
    late: list[dict[str, Any]] = []

    def held_back(cursor: Any, name: str, params: Any = None) -> Any:
        if name == "projection_copy_there":
            late.append(params)
            return [(0,)]
        return run_query(cursor, name, params)

    with monkeypatch.context() as patched:
        patched.setattr("sharding_app.adapters.django.further_journals.run_query", held_back)
        parts[1].tidied()
    Payments.reset()
    parts[1].take(0, 127)
    parts[1].facts()
    before = journals.value("SELECT position::text FROM sharding_position")
    with connections[SECOND].cursor() as cursor:
        assert run_query(cursor, "projection_copy_there", late[0]) == [(0,)]
    assert journals.value("SELECT position::text FROM sharding_position") == before
    assert journals.value("SELECT fill_type FROM sharding_position") == journals.type_id


def archived(journals: Journals, entity: str) -> str:
    """Remove an entity for an archive; return why it stays, or nothing."""
    mark = journals.value(
        "SELECT format('%%s %%s-%%s %%s, 0 , 0', count(*), min(seq), max(seq),"
        " to_char(max(at) AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"'))"
        " FROM sharding_event WHERE entity = %s", entity,
    )  # fmt: skip
    given = {
        "type_id": journals.type_id,
        "shard": 0,
        "epoch": 1,
        "entity": entity,
        "present": 0,
        "mark": mark,
    }
    return str(journals.run("archive_remove", given)[0][3])


def test_an_archived_entity_was_passed_there(journals: Journals, parts: list[DjangoPart]) -> None:
    """The statement that removes an entity for an archive asks the copies too."""
    entity = THERE[0]
    parts[1].tidied()
    journals.there.append(entity, 1)
    journals.there.commit()
    assert archived(journals, entity) == "projections"

    def is_gone() -> bool:
        moves(journals, parts[1])
        parts[1].tidied()
        return archived(journals, entity) == ""

    in_time(is_gone)


def test_the_next_life_of_an_archived_entity_that_has_caught_up_is_seen(journals: Journals) -> None:
    """Its former numbers are left out until the position is behind the catch-up."""
    entity, here, work = THERE[0], part(""), part(SECOND, failures=1)
    run(here)
    run(work)
    Payments.bad = {13}
    journals.there.append(entity, 13, 14)
    journals.there.commit()
    run(work, careful=True)
    Payments.bad = set()
    assert control.retry(NAME, 1, "projected.Account", entity)
    run(work)

    def is_passed() -> bool:
        moves(journals, work)
        work.tidied()
        return bool(
            journals.value(
                "SELECT max(e.xmin::text::bigint) < (SELECT min(pg_snapshot_xmin(position)::text::bigint)"
                " FROM sharding_position) FROM sharding_event e WHERE entity = %s", entity,
            )
        )  # fmt: skip

    in_time(is_passed)
    assert archived(journals, entity) == "projections"

    def is_archived() -> bool:
        """A transaction of another test may hold back what positions may pass."""
        moves(journals, work)
        here.tidied()
        work.tidied()
        return archived(journals, entity) == ""

    in_time(is_archived)
    journals.there.append(entity, 21, 22, 23, first=1)
    journals.there.commit()
    run(work)
    assert [amount for each, _, amount in log() if each == entity] == [13, 14, 21, 22, 23]


# -- What a failover or a restore has put back -----------------------------------------------------


def test_a_journal_that_has_lost_its_last_transactions_is_noticed(
    journals: Journals, parts: list[DjangoPart]
) -> None:
    """Its numbers of transactions come again: events would be passed over without a word."""
    append(journals, 1)
    for each in parts:
        run(each)
    journals.value("UPDATE sharding_secured SET xid = (xid::text::bigint - 1)::text::xid8")
    append(journals, 2)
    with pytest.raises(ProjectionError, match="has lost transactions") as caught:
        parts[1].take(0, 127)
    assert caught.value.code == "other_server"
    assert not control.status()[0].is_of_this_server
    run(parts[0])
    Payments.reset()
    for each in parts:
        run(each)
    is_exact(journals)
    assert control.status()[0].is_of_this_server


def test_an_order_that_needs_a_journal_that_is_down_names_it(
    journals: Journals, parts: list[DjangoPart]
) -> None:
    append(journals, 1)
    for each in parts:
        run(each)
    with journals.down():
        connections[SECOND].close()
        with pytest.raises(CommandError, match=re.escape(f"DATABASES['{SECOND}']")) as told:
            call_command("sharding_projection", NAME, accept_server=True, yes=True)
        assert "'default'" not in str(told.value)


def test_an_operator_may_go_on_with_a_journal_of_the_same_numbers(
    journals: Journals, parts: list[DjangoPart]
) -> None:
    append(journals, 1)
    for each in parts:
        run(each)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE sharding_following SET server = 'another'")
    parts[1].forget()
    append(journals, 2)
    with pytest.raises(ProjectionError, match="another server"):
        parts[1].take(0, 127)
    control.accept_server(NAME, 1)
    for each in parts:
        run(each)
    is_exact(journals)


def test_a_position_that_was_put_back_behind_deletions_is_noticed(
    journals: Journals, parts: list[DjangoPart]
) -> None:
    """The cluster's database has lost positions whose copies have let changes go."""
    append(journals, 1)
    run(parts[1])
    with connection.cursor() as cursor:
        cursor.execute("SELECT position::text FROM sharding_position WHERE journal = %s", [SECOND])
        ((before,),) = cursor.fetchall()

        def has_passed() -> bool:
            moves(journals, parts[1])
            parts[1].tidied()
            return bool(
                journals.value(
                    "SELECT passed > pg_snapshot_xmin(%s::pg_snapshot) FROM sharding_following", before
                )
            )

        in_time(has_passed)
        cursor.execute(
            "UPDATE sharding_position SET position = %s::pg_snapshot, secured = NULL WHERE journal = %s",
            [before, SECOND],
        )
    with pytest.raises(ProjectionError, match="has deleted changes"):
        parts[1].take(0, 127)


def test_a_database_without_the_journals_rows_is_refused(journals: Journals, parts: list[DjangoPart]) -> None:
    append(journals, 1)
    run(parts[1])
    journals.value("TRUNCATE sharding_following, sharding_secured, sharding_position, sharding_projection")
    with pytest.raises(ProjectionError, match="has lost transactions"):
        parts[1].take(0, 127)


# -- One that is away, and workers that die --------------------------------------------------------


def test_a_journal_that_is_down_stops_its_own_positions_only(
    journals: Journals, parts: list[DjangoPart]
) -> None:
    append(journals, 1)
    for each in parts:
        run(each)
    append(journals, 2)
    with journals.down():
        for _ in range(3):
            with pytest.raises(NotReady, match=SECOND):
                parts[1]._tended(lambda: run(parts[1]))
            assert is_run(parts[0])
        assert {entity for entity, seq, _ in log() if seq == 2} == set(HERE)
        (found,) = control.status()
        assert [(each.journal, bool(each.trouble)) for each in found.parts] == [("", False), (SECOND, True)]
        assert shows(HERE[0])
    in_time(lambda: is_run(parts[1]))
    is_exact(journals)
    assert [each.trouble for each in control.status()[0].parts] == ["", ""]


def test_a_journal_that_takes_no_writes_stops_its_own_positions_only(
    journals: Journals, parts: list[DjangoPart]
) -> None:
    """Its address leads to a standby, say: another error would end the turns of all journals."""
    append(journals, 1)
    change = f'ALTER DATABASE "{journals.params["dbname"]}"'
    journals.value(f"{change} SET default_transaction_read_only = on")
    connections[SECOND].close()
    try:
        with pytest.raises(NotReady, match="read-only"):
            parts[1]._tended(lambda: run(parts[1]))
    finally:
        journals.value(f"BEGIN READ WRITE; {change} RESET default_transaction_read_only; COMMIT")
        connections[SECOND].close()
    for each in parts:
        run(each)
    is_exact(journals)


@pytest.mark.parametrize("begun", [True, False], ids=["begun", "new"])
def test_a_turn_whose_commit_fails_behind_that_of_the_journal_is_taken_again(
    journals: Journals, monkeypatch: pytest.MonkeyPatch, begun: bool
) -> None:
    work = part(SECOND)
    if begun:
        run(work)
    append(journals, 1)
    work.facts()

    def fails() -> None:
        raise OperationalError("the connection is lost")

    with monkeypatch.context() as patched:
        patched.setattr(connections["default"], "commit", fails)
        with pytest.raises(OperationalError):
            work.take(0, 127)
    assert journals.value("SELECT count(*) FROM sharding_secured") == 1
    assert log() == []
    run(work)
    run(part(""))
    is_exact(journals)


def test_a_turn_is_secured_there_before_its_commit(
    journals: Journals, parts: list[DjangoPart], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A standby of the journal has what the rows rest on, if it takes over."""
    append(journals, 1)
    seen: list[bool] = []
    real = connection.commit

    def commit() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT secured::text FROM sharding_position WHERE journal = %s", [SECOND])
            ((secured,),) = cursor.fetchall()
        seen.append(journals.value("SELECT xid::text FROM sharding_secured") == secured)
        real()

    with monkeypatch.context() as patched:
        patched.setattr(connection, "commit", commit)
        parts[1].take(0, 127)
    assert seen == [True]


class Load:
    """Writers in both journals, until they are told to end."""

    def __init__(self, journals: Journals) -> None:
        self._ends = threading.Event()
        journals.take()
        self._threads = [
            threading.Thread(target=self._write, args=(params, ids, number))
            for params, ids in ((dict(wiring.conninfo("default")), HERE), (journals.params, THERE))
            for number in range(2)
        ]

    def _write(self, params: dict[str, Any], ids: list[str], number: int) -> None:
        writer, chance = Writer(params), random.Random(number)
        while not self._ends.is_set():
            for _ in range(chance.randint(1, 3)):
                writer.append(chance.choice(ids[number::2]), *range(chance.randint(1, 2)))
            if chance.random() < 0.1:
                self._ends.wait(0.02)
            writer.commit()
            self._ends.wait(0.002)
        writer.close()

    def __enter__(self) -> None:
        for each in self._threads:
            each.start()

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        for each in self._threads:
            each.join()


def test_each_event_once_under_load_while_sessions_and_journals_die(journals: Journals) -> None:
    """Workers of both journals lose their sessions in the middle of turns, in either database, and
    one journal is down for a while.
    """
    ends = threading.Event()
    failures: list[BaseException] = []
    lost = 0

    def works(journal: str, first: int, last: int) -> None:
        nonlocal lost
        work = part(journal, events=5, chunk=3, keys=3)
        try:
            while not ends.is_set():
                try:
                    work._tended(lambda: work.take(first, last))
                except (NotReady, DatabaseError):
                    lost += 1
        except BaseException as error:
            failures.append(error)
            raise
        finally:
            work.leave()

    workers = [
        threading.Thread(target=works, args=(journal, *slices))
        for journal in ("", SECOND)
        for slices in ((0, 63), (64, 127))
    ]
    with Load(journals):
        for each in workers:
            each.start()
        params: dict[str, Any] = dict(wiring.conninfo("default"))
        with psycopg.connect(**params, autocommit=True) as admin:
            turn = 0
            # On a busy machine it takes longer until enough is written, and something was lost.
            while turn < 40 or not lost or len(journals.stored()) <= 200:
                assert turn < 4000
                admin.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
                    " AND ((application_name = 'sharding//projection' AND datname = current_database())"
                    " OR (datname = %s AND query ~ 'projection|sharding_secured|given'))",
                    [journals.params["dbname"] if turn % 2 else ""],
                )
                turn += 1
                threading.Event().wait(0.05)
    with journals.down():
        threading.Event().wait(0.3)
    ends.set()
    for each in workers:
        each.join()
    assert failures == []
    assert lost > 0
    for journal in ("", SECOND):
        work = part(journal)
        in_time(partial(is_run, work))
    is_exact(journals)
    assert len(log()) > 200


def test_each_event_once_while_workers_are_killed(
    journals: Journals, child_environment: ChildEnvironment
) -> None:
    """Whole processes, killed at moments of chance, with writers in both journals."""
    command = [sys.executable, "-m", "tests.integration.adapters.django.journal_worker"]
    chance, killed = random.Random(5), 0
    with Load(journals):
        for _ in range(3):
            handled = len(log())
            worker = subprocess.Popen(
                [*command, journals.params["dbname"]],
                env=child_environment(),
                cwd=ROOT,
                start_new_session=True,
            )
            try:
                until(lambda handled=handled: len(log()) > handled + 20, 60.0, "it handles events")  # type: ignore[misc]
                threading.Event().wait(chance.random() * 0.2)
            finally:
                worker.kill()
                killed += worker.wait() == -signal.SIGKILL
    assert killed == 3
    for journal in ("", SECOND):
        in_time(partial(is_run, part(journal)))
    is_exact(journals)


# -- Targets outside of the cluster's database -----------------------------------------------------


@pytest.fixture
def posts() -> Iterator[Any]:
    with projections.isolated():

        class Posts(Projection, name="projected.Posts"):
            source = Account
            seen: ClassVar[list[tuple[str, int]]] = []

            @on(Paid)
            async def paid(self, happened: Happened[Paid]) -> None:
                self.seen.append((happened.entity_id, happened.number))

        yield Posts


def test_a_service_hears_of_events_that_the_journal_has_acknowledged(
    journals: Journals, posts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = part(SECOND, posts)
    run(work)
    secured: list[int] = []
    real: Callable[[], None] = work.secure

    def secure() -> None:
        secured.append(len(posts.seen))
        real()

    monkeypatch.setattr(work, "secure", secure)
    journals.there.append(THERE[0], 1, 2)
    journals.there.commit()
    run(work)
    assert posts.seen == [(THERE[0], 1), (THERE[0], 2)]
    assert secured == [0]
