"""Rows that an entity alone writes are the test's: they are rolled back with it."""

import contextlib

import pytest
from django.contrib.auth.models import Group

from sharding_app import EntityFailed, EventSourced, NotSerializable, applies, command, event
from sharding_app.testing import given


@event
class GroupMade:
    name: str


class Maker(EventSourced, name="rows.Maker"):
    count: int = 0

    @command
    def make(self, name: str) -> int:
        self.persist(GroupMade(name), in_transaction=lambda: Group.objects.create(name=name))
        return self.count

    @command(thread=True)
    def make_in_a_thread(self, name: str) -> None:
        Group.objects.create(name=name)

    @command
    async def make_by_the_async_orm(self, name: str) -> None:
        await Group.objects.acreate(name=name)

    @command
    def note(self) -> int:
        noted: list[int] = []
        self.persist(GroupMade("none"), in_transaction=lambda: noted.append(1))
        return self.count

    @command
    def make_and_break(self, name: str) -> int:
        def make() -> None:
            Group.objects.create(name=name)
            with contextlib.suppress(ValueError):
                Group.objects.create(name="other", id="no number")

        self.persist(GroupMade(name), in_transaction=make)
        return self.count

    @applies(GroupMade)
    def on_made(self, happened: GroupMade) -> None:
        self.count += 1


@pytest.mark.django_db
@pytest.mark.parametrize("call", [Maker.make, Maker.make_in_a_thread, Maker.make_by_the_async_orm] * 2)
def test_rows_are_in_the_transaction_of_the_test(call: object) -> None:
    assert not Group.objects.exists(), "an earlier test has left some"
    Group.objects.create(name="own")
    given().when(call, "made").then()
    assert set(Group.objects.values_list("name", flat=True)) == {"own", "made"}


@pytest.mark.django_db
def test_rows_go_with_events_that_are_refused() -> None:
    maker = given().when(Maker.make, "first").next_write_fails()
    maker.when(Maker.make, "second").then_raises(NotSerializable, events=[], state={"count": 1})
    assert Group.objects.get().name == "first"


@pytest.mark.django_db
def test_a_function_that_breaks_its_transaction_fails_as_in_the_real_cluster() -> None:
    maker = given().when(Maker.make_and_break, "gone")
    maker.then_raises(EntityFailed, "has ended its transaction", events=[], state={"count": 0})
    assert not Group.objects.exists()


def test_a_function_without_rows_needs_no_database() -> None:
    given().when(Maker.note).then(reply=1)
