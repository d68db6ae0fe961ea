"""What may stand in arguments, replies, events and state, and what a value that does not fit
does.
"""

import dataclasses
import datetime as dt
import decimal
import enum
import uuid
from typing import Any

import msgspec
import pytest
from django.utils.translation import gettext_lazy

from sharding_app import (
    DurableState,
    EntityFailed,
    EventSourced,
    InvalidCall,
    NotSerializable,
    PartiallyApplied,
    Rejected,
    ShardingError,
    ShardingSettings,
    applies,
    command,
    event,
    query,
)
from sharding_app.runtime.base.config import NodeConfig
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.waiting import travel, until

pytestmark = pytest.mark.asyncio


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Point:
    x: int
    y: decimal.Decimal


class Box(msgspec.Struct):
    corner: Point
    tags: frozenset[str]


@dataclasses.dataclass
class Everything:
    day: dt.date
    moment: dt.datetime
    clock: dt.time
    span: dt.timedelta
    amount: decimal.Decimal
    key: uuid.UUID
    colour: Colour
    point: Point
    box: Box
    maybe: int | None
    raw: bytes


written: list[int] = []


@event
class Said:
    what: str


@event
class Happened:
    what: Everything


@event
class Loose:
    anything: object


EVERYTHING = Everything(
    day=dt.date(2024, 2, 29),
    moment=dt.datetime(2024, 2, 29, 12, 30, 1, 5, tzinfo=dt.UTC),
    clock=dt.time(23, 59, 59, 1),
    span=dt.timedelta(days=-1, microseconds=7),
    amount=decimal.Decimal("0.10"),
    key=uuid.UUID(int=7),
    colour=Colour.BLUE,
    point=Point(1, decimal.Decimal("1e-3")),
    box=Box(Point(2, decimal.Decimal(2)), frozenset({"a", "b"})),
    maybe=None,
    raw=b"\x00\xff",
)


class Journaled(EventSourced, name="entities.Journaled"):
    settings = ShardingSettings(snapshot_every=2)
    last: Everything | None = None

    @command
    def put(self, what: Everything) -> Everything:
        self.persist(Happened(what))
        assert self.last is not None
        return self.last

    @command
    def put_loose(self, what: str) -> None:
        self.persist(Loose({"nan": float("nan")}[what]))

    @query
    def show(self) -> Everything | None:
        return self.last

    @applies(Happened)
    def on_happened(self, happened: Happened) -> None:
        self.last = happened.what

    @applies(Loose)
    def on_loose(self, happened: Loose) -> None:
        """Nothing to keep."""


class Kept(DurableState, name="entities.Kept"):
    last: Everything | None = None

    @command
    def put(self, what: Everything) -> Everything:
        self.last = what
        return what

    @query
    def show(self) -> Everything | None:
        return self.last

    @command
    def label(self, text: str) -> str:
        return text

    @command
    def large(self, size: int) -> str:
        self.last = None if self.last else EVERYTHING
        return "x" * size


async def test_every_kind_of_value_arrives_and_is_recovered_as_itself(cluster: MemoryCluster) -> None:
    for _ in range(3):
        assert await Journaled.ref("a").put(EVERYTHING) == EVERYTHING
    await until(lambda: len(cluster.snapshots(Journaled, "a")) == 1)
    cluster.forget()
    assert await Journaled.ref("a").show() == EVERYTHING
    assert cluster.events(Journaled, "a") == [Happened(EVERYTHING)] * 3


async def test_the_same_as_durable_state(cluster: MemoryCluster) -> None:
    assert await Kept.ref("a").put(EVERYTHING) == EVERYTHING
    cluster.forget()
    assert await Kept.ref("a").show() == EVERYTHING


async def test_a_lazy_translation_becomes_text_at_the_caller(cluster: MemoryCluster) -> None:
    lazy: Any = gettext_lazy("Yes")
    assert await Kept.ref("a").label(lazy) == "Yes"


async def test_an_event_that_cannot_be_encoded_fails_its_command_alone(cluster: MemoryCluster) -> None:
    await Journaled.ref("a").put(EVERYTHING)
    with pytest.raises(NotSerializable, match=r"event Loose.*not a finite number"):
        await Journaled.ref("a").put_loose("nan")
    assert await Journaled.ref("a").show() == EVERYTHING
    assert len(cluster.events(Journaled, "a")) == 1


async def test_a_wrong_argument_never_reaches_the_entity(cluster: MemoryCluster) -> None:
    with pytest.raises(InvalidCall, match="Expected `str`, got `int`"):
        await Kept.ref("a").label(5)  # type: ignore[arg-type]
    assert not await Kept.ref("a").exists()


async def test_a_reply_too_large_to_be_kept_fails_before_anything_is_stored() -> None:
    async with MemoryCluster([Kept], config=NodeConfig(max_reply_bytes=1024)) as cluster:
        with cluster.in_use():
            assert len(await Kept.ref("a").large(500)) == 500
            with pytest.raises(
                NotSerializable, match="more than 1024: nothing of the command is stored"
            ) as caught:
                await Kept.ref("a").large(2000)
            assert caught.value.code == "reply_too_large"
            assert len(cluster.events_raw(Kept, "a")) == 1
            assert await Kept.ref("a").show() == EVERYTHING, "its change is undone"


class Talker(EventSourced, name="values.Talker"):
    heard: int = 0

    @command
    async def awaits(self, length: int) -> str:
        await self.persist(Said("a"))
        return "x" * length

    @command
    def sends(self, length: int) -> str:
        self.send(Talker.ref("other").hear)
        return "x" * length

    @command
    def writes(self, length: int) -> str:
        self.persist(in_transaction=lambda: written.append(length))
        return "x" * length

    @command
    def hear(self) -> None:
        self.persist(Said("b"))

    @applies(Said)
    def on_said(self, happened: Said) -> None:
        self.heard += 1


@pytest.mark.parametrize(
    ("name", "kind", "stored"),
    [("awaits", PartiallyApplied, 1), ("sends", NotSerializable, 0), ("writes", NotSerializable, 0)],
)
async def test_a_reply_too_large_is_told_truly_where_no_event_is_stored_with_it(
    name: str, kind: type[ShardingError], stored: int
) -> None:
    """It was found to be too large on its way, behind the commit, and the error said that nothing
    was stored.
    """
    written.clear()
    async with MemoryCluster([Talker]) as cluster:
        with cluster.in_use():
            with pytest.raises(kind) as caught:
                await getattr(Talker.ref("a"), name)(1_000_000)
            await travel(1.0)
            assert len(cluster.events_raw(Talker, "a")) == stored
            assert (cluster.events_raw(Talker, "other"), written) == ([], [])
            assert caught.value.stored == ("partly" if stored else "nothing")


class TooMany(Rejected):
    """A refusal with much to say."""


class Loud(EventSourced, name="values.Loud"):
    @command
    def fail(self, length: int) -> None:
        raise ValueError("x" * length)

    @command
    def refuse(self, length: int) -> None:
        raise TooMany("y" * length, code="too_many", params={"by": "z" * length})


async def test_an_error_too_large_for_a_message_is_told_without_the_rest_of_its_text() -> None:
    async with MemoryCluster([Loud], nodes=2) as cluster:
        with cluster.in_use():
            for number in range(8):  # at both nodes, one of which is the caller's
                ref = Loud.ref(number)
                with pytest.raises(EntityFailed, match=r"fail raised ValueError: xx.*xx \[\.\.\.\]$"):
                    await ref.fail(1024 * 1024)
                with pytest.raises(TooMany, match=r"^y+ \[\.\.\.\]$") as refused:
                    await ref.refuse(1024 * 1024)
                assert (refused.value.code, refused.value.params) == ("too_many", {})
                with pytest.raises(TooMany) as whole:
                    await ref.refuse(100_000)
                assert whole.value.params == {"by": "z" * 100_000}
