"""Messages and timers from outside, stored with rows of the application: both or neither."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group
from django.db import DatabaseError, connection, connections, transaction

from sharding_app import Unavailable, WrongContext
from sharding_app.adapters.django.outside import DjangoOutside
from sharding_app.entities.staging import StagedMessage
from sharding_app.models import Message
from sharding_app.protocol.ids import shard_of

pytestmark = pytest.mark.django_db(transaction=True)

MESSAGE = StagedMessage("shop.Cart", "alice", "clear", b"\x90")
OUTSIDE = DjangoOutside("default")
woken: list[str] = []


def wake() -> None:
    woken.append("woken")


@pytest.fixture(autouse=True)
def _hosted() -> None:
    """Say that a node has hosted the type."""
    woken.clear()
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO sharding_type (name, kind, number_of_shards, extractor, hash_version, role, store_mode)"
            " VALUES ('shop.Cart', 'event_sourced', 64, '', 'x', '', 'off')"
        )


def rows(*columns: str) -> list[tuple[Any, ...]]:
    return list(Message.objects.order_by("due", "seq").values_list(*columns))


def roll_back() -> None:
    with transaction.atomic():
        Group.objects.create(name="buyers")
        OUTSIDE.store(MESSAGE, wake)
        raise ValueError("no")


def test_a_message_commits_with_a_row_of_the_application() -> None:
    with transaction.atomic():
        Group.objects.create(name="buyers")
        OUTSIDE.store(MESSAGE, wake)
        assert woken == []
    assert woken == ["woken"]
    columns = ("shard", "entity", "epoch", "target_type", "target", "command", "args", "key")
    ((*place, args, key),) = rows(*columns)
    assert place == [shard_of("alice", 64), "alice", None, "shop.Cart", "alice", "clear"]
    assert (bytes(args), key) == (b"\x90", None)


def test_neither_is_there_after_a_rollback() -> None:
    with pytest.raises(ValueError, match="no"):
        roll_back()
    assert rows("id") == []
    assert woken == []
    assert not Group.objects.exists()


def test_a_callers_rows_stay_where_it_catches_our_error() -> None:
    with transaction.atomic():
        Group.objects.create(name="buyers")
        with pytest.raises(Unavailable, match="no node has hosted"):
            OUTSIDE.store(MESSAGE._replace(target_type="shop.Unknown"), wake)
        Group.objects.create(name="sellers")
        OUTSIDE.store(MESSAGE, wake)
    assert set(Group.objects.values_list("name", flat=True)) == {"buyers", "sellers"}
    assert len(rows("id")) == 1
    assert woken == ["woken"]


def test_an_error_of_the_database_ends_the_callers_transaction() -> None:
    def store() -> None:
        with transaction.atomic():
            Group.objects.create(name="buyers")
            with pytest.raises(DatabaseError):
                OUTSIDE.store(MESSAGE._replace(target="a\0"), wake)
            OUTSIDE.store(MESSAGE, wake)

    with pytest.raises(transaction.TransactionManagementError):
        store()
    assert not Group.objects.exists()
    assert rows("id") == []
    assert woken == []


@pytest.mark.parametrize("in_async_code", [False, True])
def test_a_database_without_commits_is_refused(monkeypatch: pytest.MonkeyPatch, in_async_code: bool) -> None:
    """The message would be taken, and gone with the connection."""
    monkeypatch.setitem(connection.settings_dict, "AUTOCOMMIT", False)
    connection.close()

    def store() -> None:
        if in_async_code:
            asyncio.run(OUTSIDE.store_async(MESSAGE, wake))
        else:
            OUTSIDE.store(MESSAGE, wake)

    with pytest.raises(WrongContext, match="AUTOCOMMIT off") as caught:
        store()
    assert (caught.value.code, caught.value.stored) == ("no_commits", "nothing")
    monkeypatch.undo()
    connection.close()
    assert rows("id") == []


def test_a_transaction_of_the_callers_own_commits_it_too() -> None:
    transaction.set_autocommit(False)
    try:
        OUTSIDE.store(MESSAGE, wake)
        transaction.rollback()
        OUTSIDE.store(MESSAGE, wake)
        transaction.commit()
    finally:
        transaction.set_autocommit(True)
    assert len(rows("id")) == 1


def test_without_a_transaction_it_has_its_own_also_in_async_code() -> None:
    OUTSIDE.store(MESSAGE, wake)

    async def store() -> None:
        await OUTSIDE.store_async(MESSAGE, wake)
        await sync_to_async(connections.close_all)()

    asyncio.run(store())
    assert len(rows("id")) == 2
    assert woken == ["woken", "woken"]


def test_a_timer_is_due_at_its_time_or_so_long_after() -> None:
    at = datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC)
    OUTSIDE.store(MESSAGE._replace(key="?later:1", at=at), wake)
    OUTSIDE.store(MESSAGE._replace(key="?later:2", delay=3600.0), wake)
    (after, second), found = rows("due", "key")
    assert found == (at, "?later:1")
    assert second == "?later:2"
    assert timedelta(minutes=59) < after - datetime.now(UTC) < timedelta(minutes=61)


def test_messages_of_one_transaction_keep_their_order() -> None:
    with transaction.atomic():
        for name in "cab":
            OUTSIDE.store(MESSAGE._replace(command=name), wake)
    assert [name for (name,) in rows("command")] == ["c", "a", "b"]


def test_a_type_that_no_node_has_hosted_is_refused() -> None:
    with pytest.raises(Unavailable, match=r"no node has hosted 'shop\.Nothing' yet") as raised:
        OUTSIDE.store(MESSAGE._replace(target_type="shop.Nothing"), wake)
    assert raised.value.stored == "nothing"


def test_a_transaction_of_another_database_is_refused() -> None:
    with pytest.raises(WrongContext, match="the open transaction is on 'default'"), transaction.atomic():
        DjangoOutside("elsewhere").store(MESSAGE, wake)
