"""An entity in memory that sets a timer anew: the former time of it does not come any more."""

from typing import ClassVar

import pytest

from sharding_app import Entity, EventSourced, command
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.delivery.test_messages import CONFIG
from tests.unit.runtime.waiting import travel

pytestmark = pytest.mark.asyncio


class Session(Entity, name="replaced.Session"):
    rung: ClassVar[list[float]] = []

    @command
    def touch(self, seconds: float) -> float:
        self.schedule(self.ref.expire.bind(seconds), key="k", after=seconds)
        return seconds

    @command
    def expire(self, seconds: float) -> None:
        self.rung.append(seconds)


class Visitor(EventSourced, name="replaced.Visitor"):
    @command
    def visit(self, seconds: float, *, replies: bool) -> None:
        sent = self.send(Session.ref("a").touch, seconds)
        if replies:
            sent.reply_to(self.seen)

    @command
    def seen(self, seconds: float) -> None: ...


@pytest.mark.parametrize("replies", [False, True])
async def test_a_message_may_set_a_timer_anew(monkeypatch: pytest.MonkeyPatch, *, replies: bool) -> None:
    """The time at which the row was stored is not known if the message has a reply."""
    monkeypatch.setattr(Session, "rung", [])
    async with MemoryCluster([Session, Visitor], nodes=1, config=CONFIG) as cluster:
        with cluster.in_use():
            await Session.ref("a").touch(5.0)
            await travel(1)
            await Visitor.ref("v").visit(30.0, replies=replies)
            await travel(20)
            assert Session.rung == []
            await travel(20)
            assert Session.rung == [30.0]
