"""Entities for the tests against PostgreSQL and Redis."""

from __future__ import annotations

import contextlib
import time

from django.contrib.auth.models import Group

from sharding_app import DurableState, Entity, EventSourced, ShardingSettings, applies, command, event, query


@event
class Registered:
    name: str


class Club(EventSourced, name="entities.Club"):
    """Keeps events, and rows of the user's beside them."""

    settings = ShardingSettings(snapshot_every=3, keep_snapshots=1)
    members: list[str]

    def __init__(self) -> None:
        self.members = []

    @command
    def join(self, name: str) -> int:
        self.persist(Registered(name))
        return len(self.members)

    @command
    def join_with_row(self, name: str) -> int:
        self.persist(Registered(name), in_transaction=lambda: Group.objects.create(name=name))
        return len(self.members)

    @command
    def row_alone(self, name: str) -> int:
        self.persist(in_transaction=lambda: Group.objects.create(name=name))
        return len(self.members)

    @command
    async def join_with_row_and_go_on(self, name: str) -> int:
        await self.persist(Registered(name), in_transaction=lambda: Group.objects.create(name=name))
        return len(self.members)

    @command
    def join_and_touch(self, name: str, row: str) -> int:
        def also() -> None:
            Group.objects.create(name=name)
            Group.objects.select_for_update().get(name=row)

        self.persist(Registered(name), in_transaction=also)
        return len(self.members)

    @command
    def join_and_catch(self, name: str) -> int:
        def also() -> None:
            with contextlib.suppress(ValueError):
                Group.objects.create(name=name, id="no number")

        self.persist(Registered(name), in_transaction=also)
        return len(self.members)

    @command
    def leave_memory(self) -> None:
        self.context.stop()

    @command
    async def rows(self) -> int:
        return await Group.objects.acount()

    @command
    def rows_on_the_loop(self) -> int:
        return Group.objects.count()

    @command(thread=True)
    def rows_in_a_thread(self, pause: float = 0.0) -> int:
        time.sleep(pause)
        return Group.objects.count()

    @query
    def all(self) -> list[str]:
        return self.members

    @applies(Registered)
    def on_registered(self, happened: Registered) -> None:
        self.members.append(happened.name)


class HotClub(Club, name="entities.HotClub"):
    settings = ShardingSettings(pipelined=True)


class Setting(DurableState, name="entities.Setting"):
    value: str = ""

    @command
    def put(self, value: str) -> str:
        former, self.value = self.value, value
        return former

    @query
    def get(self) -> str:
        return self.value


class Caller(Entity, name="entities.Caller"):
    """Asks others of its kind, one after the other."""

    @command
    async def ask(self, way: list[str]) -> int:
        return 1 + await Caller.ref(way[0]).ask(way[1:]) if way else 1
