"""An operator changes messages while their shard moves from one journal to another."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connections

from sharding_app import wiring
from sharding_app.adapters.postgres import moving
from sharding_app.operations import messages
from sharding_app.operations.messages import PartlyDone
from tests.integration.adapters.django.two_journals import SECOND, THERE, Journals
from tests.integration.adapters.django.two_journals import journals as two_journals
from tests.integration.adapters.django.two_journals import second as second_database

pytestmark = pytest.mark.django_db(transaction=True)
journals = two_journals
second = second_database
NAMES = ("", SECOND)
PUT = (
    "INSERT INTO sharding_message"
    " (type_id, shard, epoch, entity, id, seq, position, target_type, target, command, args, due, parked)"
    " VALUES (%s, 1, 1, %s, 'm1', 5, 0, 'projected.Account', 'e', 'go', '\\x01', now(), true)"
)


@pytest.fixture
def apart(journals: Journals, monkeypatch: pytest.MonkeyPatch) -> Journals:
    """No shard has a home, and a message of one in the further journal is parked."""
    monkeypatch.setattr(messages, "tell", lambda changed: None)
    journals.take()
    journals.value(PUT, journals.type_id, THERE[0])
    with connections["default"].cursor() as cursor:
        cursor.execute("UPDATE sharding_shard SET home = NULL, step = 'stopped'")
    return journals


def stored(journals: Journals) -> dict[str, list[bool]]:
    """Return in which journals the message is, and whether it is parked there."""
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT parked FROM sharding_message")
        here = [parked for (parked,) in cursor.fetchall()]
    there = journals.value("SELECT array_agg(parked) FROM sharding_message") or []
    return {name: found for name, found in zip(NAMES, (here, there), strict=True) if found}


def discard() -> list[messages.Changed]:
    return messages.discard(["m1"], NAMES)


def retry() -> list[messages.Changed]:
    return messages.run_now(["m1"], parked=True, journals=NAMES)


@pytest.mark.parametrize("change", [discard, retry])
def test_a_change_that_the_move_takes_back_is_not_called_done(
    apart: Journals, monkeypatch: pytest.MonkeyPatch, change: Any
) -> None:
    """The row is out of the source's table, and the target has a copy of it."""
    rest = moving._Move._put_rest
    told: list[PartlyDone] = []

    def beside(self: Any, *args: Any) -> None:
        if args[-1] == "moving_message":
            assert stored(apart) == {"": [True]}
            with pytest.raises(PartlyDone) as caught:
                change()
            told.append(caught.value)
        rest(self, *args)

    monkeypatch.setattr(moving._Move, "_put_rest", beside)
    conninfo = dict(wiring.conninfo("default"))
    for _ in moving.move_shards(conninfo, {SECOND: apart.params}, "projected.Account", "", [1], "me"):
        pass
    assert stored(apart) == {"": [True]}
    assert [(each.moving, each.changed, each.down) for each in told] == [(1, (), ())]
    assert [each.id for each in change()] == ["m1"]
    assert stored(apart) == ({} if change is discard else {"": [False]})


@pytest.mark.parametrize("change", [discard, retry])
def test_a_copy_beside_the_message_is_no_message(apart: Journals, change: Any) -> None:
    """A move was stopped before its switch, and its shard was opened again."""
    with connections["default"].cursor() as cursor:
        cursor.execute(PUT, [apart.type_id, THERE[0]])
    assert [each.id for each in change()] == ["m1"]
    assert stored(apart) == ({} if change is discard else {"": [False], SECOND: [False]})
    with connections["default"].cursor() as cursor:
        cursor.execute("DELETE FROM sharding_message")
        cursor.execute(PUT, [apart.type_id, THERE[0]])
    apart.value("DELETE FROM sharding_message")
    with pytest.raises(PartlyDone) as caught:
        change()
    assert (caught.value.moving, caught.value.changed) == (1, ())
