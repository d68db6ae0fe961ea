"""Projections in the default mode of tests: who waits for one runs its handlers, in the test's own
transaction.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection

from sharding_app import EventSourced, Happened, Projection, applies, command, event, on, on_erased
from sharding_app.entities.projections import projections
from sharding_app.entities.registry import registry
from sharding_app.errors import AskTimeout
from sharding_app.testing import project


@pytest.fixture
def shop() -> Iterator[tuple[Any, Any, Any]]:
    with registry.isolated(), projections.isolated():

        @event(name="kit.Joined")
        class Joined:
            member: str

        class Team(EventSourced, name="kit.Team"):
            @command
            def join(self, member: str) -> None:
                self.persist(Joined(member))

            @applies(Joined)
            def on_joined(self, happened: Joined) -> None:
                """Keep nothing."""

        class Members(Projection, name="kit.Members"):
            source = Team
            batch_size = 2

            @on(Joined)
            def joined(self, happened: Happened[Joined]) -> None:
                if happened.event.member == "bad":
                    raise ValueError("no")
                Group.objects.create(name=f"{happened.entity_id}/{happened.number}/{happened.event.member}")

            @on_erased
            def erased(self, ref: Any) -> None:
                Group.objects.filter(name__startswith=f"{ref.entity_id}/").delete()

            def clear(self) -> None:
                Group.objects.all().delete()

        yield Team, Members, Joined


@pytest.fixture
def async_members(shop: tuple[Any, Any, Any]) -> Any:
    team, _, of_joining = shop

    class AsyncMembers(Projection, name="kit.AsyncMembers"):
        source = team

        @on(of_joining)
        async def joined(self, happened: Happened[Any]) -> None:
            await Group.objects.acreate(name=f"{happened.entity_id}/{happened.number}")

        async def clear(self) -> None:
            await Group.objects.all().adelete()

    return AsyncMembers


def names() -> list[str]:
    return sorted(Group.objects.values_list("name", flat=True))


@pytest.mark.django_db
def test_who_waits_for_a_projection_sees_its_rows(shop: tuple[Any, Any, Any]) -> None:
    team, members, _ = shop
    for member in ("ann", "bob", "cy"):
        team.ref("red").sync.join(member)
    assert names() == []
    members.caught_up_sync(team.ref("red"))
    assert names() == ["red/1/ann", "red/2/bob", "red/3/cy"]
    team.ref("blue").sync.join("dan")
    asyncio.run(members.caught_up(team.ref("blue"), 1))
    members.caught_up_sync(team.ref("blue"))
    assert names()[0] == "blue/1/dan"
    assert len(names()) == 4
    with pytest.raises(AskTimeout, match="event 2 of 'blue'"):
        members.caught_up_sync(team.ref("blue"), 2, timeout=0)
    members.reset()
    assert names() == []
    members.caught_up_sync(team.ref("red"))
    assert len(names()) == 4
    assert members.live_version() == 1


@pytest.mark.django_db
def test_an_error_of_a_handler_is_the_tests(shop: tuple[Any, Any, Any]) -> None:
    team, members, _ = shop
    team.ref("red").sync.join("bad")
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            members.caught_up_sync(team.ref("red"))


@pytest.mark.django_db
def test_the_rows_of_a_batch_that_fails_are_taken_back(shop: tuple[Any, Any, Any]) -> None:
    team, members, joined = shop
    for member in ("ann", "bob", "cy", "bad"):
        team.ref("red").sync.join(member)
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            members.caught_up_sync(team.ref("red"))
        assert names() == ["red/1/ann", "red/2/bob"], "the first batch is kept, and comes once"
    with pytest.raises(ValueError, match="no"):
        project(members, ("blue", joined("eve")), ("blue", joined("bad")))
    assert names() == ["red/1/ann", "red/2/bob"]


@pytest.mark.django_db(transaction=True)
def test_handlers_run_in_a_transaction(shop: tuple[Any, Any, Any]) -> None:
    team, _, of_joining = shop

    class Locking(Projection, name="kit.Locking"):
        source = team

        @on(of_joining)
        def joined(self, happened: Happened[Any]) -> None:
            list(Group.objects.select_for_update())

        @on_erased
        def erased(self, ref: Any) -> None:
            list(Group.objects.select_for_update())

        def clear(self) -> None:
            list(Group.objects.select_for_update())

    team.ref("red").sync.join("ann")
    Locking.caught_up_sync(team.ref("red"))
    Locking.reset()
    project(Locking, ("red", of_joining("ann")))


def test_handlers_without_rows_need_no_database(shop: tuple[Any, Any, Any]) -> None:
    team, _, of_joining = shop
    seen = []

    class Seen(Projection, name="kit.Seen"):
        source = team

        @on(of_joining)
        def joined(self, happened: Happened[Any]) -> None:
            seen.append(happened.event.member)

    team.ref("red").sync.join("ann")
    Seen.caught_up_sync(team.ref("red"))
    project(Seen, ("red", of_joining("bob")))
    assert seen == ["ann", "bob"]


@pytest.mark.django_db
def test_async_handlers_write_into_the_tests_transaction(
    shop: tuple[Any, Any, Any], async_members: Any
) -> None:
    team, _, joined = shop
    project(async_members, ("green", joined("ann")))
    team.ref("red").sync.join("ann")
    async_members.caught_up_sync(team.ref("red"))
    team.ref("red").sync.join("bob")
    asyncio.run(async_members.caught_up(team.ref("red")))
    assert names() == ["green/1", "red/1", "red/2"]
    beside = connection.copy()
    try:
        with beside.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM auth_group")
            assert cursor.fetchone() == (0,), "nothing is committed"
    finally:
        beside.close()
    async_members.reset()
    assert names() == []


@pytest.mark.django_db(transaction=True)
def test_async_code_waits_for_async_handlers(shop: tuple[Any, Any, Any], async_members: Any) -> None:
    team, _, _ = shop

    async def main() -> int:
        await team.ref("red").join("ann")
        await async_members.caught_up(team.ref("red"))
        return await Group.objects.acount()

    assert asyncio.run(main()) == 1


@pytest.mark.django_db
def test_an_entity_that_was_erased_is_told(shop: tuple[Any, Any, Any], sharding_cluster: Any) -> None:
    team, members, joined = shop
    sharding_cluster.append(team, "red", joined("ann"), joined("bob"))
    members.caught_up_sync(team.ref("red"))
    rows = sharding_cluster.cluster.server.journal.events
    for key in [each for each in rows if each[1] == "red"]:
        del rows[key]
    sharding_cluster.append(team, "red", joined("eve"), joined("fay"), joined("gus"))
    members.caught_up_sync(team.ref("red"))
    assert names() == ["red/1/eve", "red/2/fay", "red/3/gus"]


@pytest.mark.django_db
def test_each_test_begins_anew(shop: tuple[Any, Any, Any]) -> None:
    team, members, _ = shop
    members.caught_up_sync(team.ref("red"))
    assert names() == []
