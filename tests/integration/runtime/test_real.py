"""The same promises on PostgreSQL and Redis: one node in this process, refs through a client of its
own.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.contrib.auth.models import Group
from django.db import IntegrityError, connection, transaction

from sharding_app import (
    AskTimeout,
    EntityFailed,
    InvalidCall,
    NotSerializable,
    Unavailable,
    UnreadableEvent,
    wiring,
)
from sharding_app.models import Event, Snapshot
from tests.integration.runtime.clubs import Club, HotClub, Setting
from tests.integration.runtime.held_row import held_row
from tests.support.live import until
from tests.support.slack import SLACK

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.sharding_real]


def test_events_reply_and_recovery() -> None:
    club = Club.ref("a")
    assert [club.sync.join(name) for name in "xyz"] == [1, 2, 3]
    assert club.sync.all() == ["x", "y", "z"]
    assert club.sync.exists()
    assert not Club.ref("b").sync.exists()
    assert Event.objects.filter(entity="a").count() == 3


def test_the_connections_follow_the_test_database() -> None:
    name = connection.settings_dict["NAME"]
    assert "test" in name
    assert wiring.conninfo("default")["dbname"] == name


def test_snapshots_are_written() -> None:
    for name in "abcdef":
        Club.ref("s").sync.join(name)

    def found() -> list[int]:
        return list(Snapshot.objects.filter(entity="s").values_list("seq", flat=True))

    until(lambda: found() == [6], 5, "the snapshot is written")


def test_an_event_that_cannot_be_read_concerns_its_entity_and_heals() -> None:
    bad, good = Club.ref("bad"), Club.ref("good")
    for name in "ab":
        bad.sync.join(name)
    bad.sync.leave_memory()
    assert Event.objects.filter(entity="bad", seq=2).count() == 1
    rename = "UPDATE sharding_event SET name = %s WHERE entity = 'bad' AND seq = 2"
    with connection.cursor() as cursor:
        cursor.execute(rename, ["Vanished"])
        with pytest.raises(
            UnreadableEvent, match="event 2: Club: the journal has an unknown event 'Vanished'"
        ) as caught:
            bad.sync.all()
        assert caught.value.params["number"] == 2
        assert good.sync.join("c") == 1
        cursor.execute(rename, ["Registered"])
    assert bad.sync.join("d") == 3, "nothing was lost, and the next message tries again"


def test_a_snapshot_that_cannot_be_read_falls_back_to_the_events() -> None:
    club = Club.ref("torn").sync
    for name in "abc":
        club.join(name)

    def torn() -> bool:
        with connection.cursor() as cursor:
            cursor.execute("""UPDATE sharding_snapshot SET state = '{"members": 5}' WHERE entity = 'torn'""")
            return bool(cursor.rowcount)

    until(torn, 5, "there is a snapshot")
    assert Snapshot.objects.filter(entity="torn").count() == 1
    club.leave_memory()
    assert club.all() == ["a", "b", "c"]


def test_durable_state() -> None:
    assert Setting.ref("a").sync.put("one") == ""
    assert Setting.ref("a").sync.put("two") == "one"
    assert Setting.ref("a").sync.get() == "two"


def test_one_hot_entity_pipelined() -> None:
    with ThreadPoolExecutor(8) as pool:
        counts = list(pool.map(lambda number: HotClub.ref("h").sync.join(str(number)), range(80)))
    assert sorted(counts) == list(range(1, 81))


def test_pipelined_a_refused_row_fails_what_is_behind_it_and_nothing_else() -> None:
    async def main() -> list[object]:
        names = [f"before {number}" for number in range(5)] + ["forbidden"] + [str(n) for n in range(5)]
        asked = [HotClub.ref("refused").join(name) for name in names]
        asked.append(HotClub.ref("beside").join("beside"))
        return list(await asyncio.gather(*asked, return_exceptions=True))

    assert HotClub.ref("refused").sync.all() == []
    with connection.cursor() as cursor:
        cursor.execute(
            "ALTER TABLE sharding_event ADD CONSTRAINT no_such_member"
            " CHECK (payload ->> 'name' IS DISTINCT FROM 'forbidden') NOT VALID"
        )
        try:
            *replies, beside = asyncio.run(main())
        finally:
            cursor.execute("ALTER TABLE sharding_event DROP CONSTRAINT no_such_member")
    assert isinstance(replies[5], NotSerializable)
    assert "no_such_member" in str(replies[5])
    assert replies[:5] == [1, 2, 3, 4, 5]
    assert all(each == number or isinstance(each, Unavailable) for number, each in enumerate(replies[6:], 6))
    assert beside == 1
    kept = sum(isinstance(each, int) for each in replies)
    members = HotClub.ref("refused").sync.all()
    assert len(members) == kept
    assert "forbidden" not in members
    assert HotClub.ref("refused").sync.join("after") == kept + 1


def test_a_retry_takes_effect_once() -> None:
    once = Club.ref("r", command_id="x-1").sync
    assert once.join("a") == 1
    Club.ref("r").sync.join("b")
    assert once.join("a") == 1
    assert Club.ref("r").sync.all() == ["a", "b"]
    with pytest.raises(InvalidCall, match="was used for 'join' before"):
        once.join_with_row("a")
    with pytest.raises(InvalidCall, match="was used for 'join' with other arguments before"):
        once.join("c")
    assert Club.ref("r").sync.all() == ["a", "b"]


def test_rows_and_events_both() -> None:
    assert Club.ref("both").sync.join_with_row("g1") == 1
    assert Club.ref("both").sync.join_with_row_and_go_on("g2") == 2
    assert set(Group.objects.values_list("name", flat=True)) == {"g1", "g2"}
    assert Club.ref("both").sync.all() == ["g1", "g2"]


def test_rows_and_events_neither_when_the_function_fails() -> None:
    Club.ref("neither").sync.join_with_row("g1")
    with pytest.raises(EntityFailed, match=IntegrityError.__name__):
        Club.ref("neither").sync.join_with_row("g1")
    assert Group.objects.count() == 1
    assert Club.ref("neither").sync.all() == ["g1"]
    assert Club.ref("neither").sync.join("g2") == 2


def move_on(entity: str) -> int:
    """Raise the epoch of the entity's shard, as a move does, and return it. Its home may come to
    host it again.
    """
    with connection.cursor() as cursor:
        cursor.execute(f"SET lock_timeout = '{500 * SLACK:g}ms'")
        cursor.execute(
            "UPDATE sharding_shard SET epoch = epoch + 1 WHERE (type_id, shard) IN"
            " (SELECT type_id, shard FROM sharding_event WHERE entity = %s) RETURNING epoch",
            [entity],
        )
        (epoch,) = cursor.fetchone()
        cursor.execute("RESET lock_timeout")
    return int(epoch)


def a_row_is_waited_for() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name LIKE 'sharding/%/also' AND wait_event_type = 'Lock'"
        )
        return bool(cursor.fetchone()[0])


@contextlib.contextmanager
def one_look() -> Iterator[None]:
    """See rows and events as they are at one moment: the command of a caller that has given up may
    be carried out in between.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        yield


def stored_since(entity: str, epoch: int) -> int:
    """Count what was stored after the first event, and see that all of it was written at that epoch
    or a newer one.
    """
    epochs = list(Event.objects.filter(entity=entity, seq__gt=1).values_list("epoch", flat=True))
    assert all(each >= epoch for each in epochs)
    return len(epochs)


def test_rows_and_events_both_or_neither_when_the_shard_has_moved_on() -> None:
    Club.ref("moved").sync.join("a")
    epoch = move_on("moved")
    with contextlib.suppress(Unavailable, TimeoutError):
        Club.ref("moved", timeout=1).sync.join_with_row("g1")
    with one_look():
        assert Group.objects.count() == stored_since("moved", epoch)


def test_a_command_whose_function_breaks_its_transaction_is_not_acknowledged() -> None:
    """Its events were gone behind a success, and the next ones left a gap."""
    club = Club.ref("broken").sync
    with pytest.raises(EntityFailed, match="TransactionManagementError"):
        club.join_and_catch("a")
    assert club.join("b") == 1
    club.leave_memory()
    assert club.all() == ["b"]


def test_rows_alone_are_fenced_and_done_once_as_events_are() -> None:
    once = Club.ref("alone", command_id="row-1").sync
    assert once.row_alone("g1") == 0
    assert once.row_alone("g1") == 0
    assert Group.objects.count() == 1
    epoch = move_on("alone")
    with contextlib.suppress(Unavailable, TimeoutError):
        Club.ref("alone", timeout=1).sync.row_alone("g2")
    with one_look():
        assert Group.objects.filter(name="g2").count() == stored_since("alone", epoch)


def test_a_held_row_holds_up_its_command_alone_while_the_shard_moves() -> None:
    """Five seconds of a lock of the user's: others commit, the epoch is raised at once, and nothing
    is half done.
    """
    Club.ref("slow").sync.join("first")
    with ThreadPoolExecutor(1) as pool, held_row("held") as row:
        waiting = pool.submit(lambda: Club.ref("slow", timeout=7 * SLACK).sync.join_and_touch("row", "held"))
        row.hold_for(1)
        assert Club.ref("other").sync.join("quick") == 1, "no other entity waits"
        epoch = move_on("slow")
        row.hold_for(4)
        assert not waiting.done()
        row.let_go()
        with contextlib.suppress(Unavailable, TimeoutError):
            waiting.result(30 * SLACK)
    with one_look():
        assert Group.objects.filter(name="row").count() == stored_since("slow", epoch)


def test_a_caller_learns_who_holds_the_row_that_its_command_waits_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sharding_app.runtime.hosting.waits.ANSWER_SECONDS", 0.5 * SLACK)
    Club.ref("late").sync.join("first")
    with ThreadPoolExecutor(2) as pool, held_row("held"):
        patience = 6  # PostgreSQL ends the wait for the row after ten seconds (TRANSACTION_LOCK_TIMEOUT)
        waiting = pool.submit(lambda: Club.ref("late", timeout=patience).sync.join_and_touch("row", "held"))
        until(a_row_is_waited_for, 4, "the first command is at work")
        behind = pool.submit(lambda: Club.ref("late", timeout=patience).sync.join("second"))
        why = (
            r"waits for PostgreSQL: server process \d+ \(.+\), idle in transaction for \d+ s,"
            " holds a lock on a row of auth_group$"
        )
        with pytest.raises(AskTimeout, match=f"it was at work on this for .+ {why}"):
            waiting.result(30)
        with pytest.raises(AskTimeout, match=f"(busy with 'join_and_touch'|at work on this).+ {why}"):
            behind.result(30)


def test_the_orm_in_handlers() -> None:
    Group.objects.create(name="one")
    assert Club.ref("orm").sync.rows() == 1
    assert Club.ref("orm").sync.rows_in_a_thread() == 1
    with pytest.raises(EntityFailed, match="async ORM") as caught:
        Club.ref("orm").sync.rows_on_the_loop()
    assert "@command(thread=True)" in str(caught.value)


def test_tell_inside_atomic_waits_for_the_commit() -> None:
    with transaction.atomic():
        Club.ref("tell").join.tell("a")
        assert not Event.objects.filter(entity="tell").exists()
    assert Club.ref("tell").sync.all() == ["a"]
    with transaction.atomic():
        Club.ref("tell").join.tell("b")
        transaction.set_rollback(True)
    assert Club.ref("tell").sync.all() == ["a"]


def test_a_thread_whose_connection_died_gets_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a request does: one failure at most, then it is well again."""
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", None)
    club = Club.ref("threads").sync
    assert club.rows_in_a_thread() == 0
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name NOT LIKE 'sharding%'"
        )
        assert cursor.fetchone()[0] >= 1
    with pytest.raises(EntityFailed, match="OperationalError"):
        club.rows_in_a_thread()
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", 0)
    assert club.rows_in_a_thread() == 0
