"""`.durably` and `.later` of refs, in the cluster in memory."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from sharding_app import EventSourced, InvalidCall, applies, command, event, query
from sharding_app.client.gateway import ClusterGateway
from sharding_app.runtime.hosting.type_host import TypeHost
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.waiting import travel, until

pytestmark = pytest.mark.asyncio


@event
class Said:
    word: str


class Echo(EventSourced, name="entities.Echo"):
    words: list[str]

    def __init__(self) -> None:
        self.words = []

    @command
    def say(self, word: str) -> None:
        self.persist(Said(word))

    @command
    def end(self) -> None:
        self.persist(Said("end"))

    @query
    def said(self) -> list[str]:
        return self.words

    @applies(Said)
    def on_said(self, happened: Said) -> None:
        self.words.append(happened.word)


def words(cluster: MemoryCluster) -> list[str]:
    return [each.word for each in cluster.events(Echo, "1") if isinstance(each, Said)]


async def test_messages_take_effect_once_and_in_order(cluster: MemoryCluster) -> None:
    for number in range(5):
        await Echo.ref("1").say.durably(f"{number}")
    await until(lambda: len(words(cluster)) == 5)
    assert words(cluster) == ["0", "1", "2", "3", "4"]
    assert not cluster.server.messages.rows


async def test_a_lost_wake_up_delays_the_first_message_of_all(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node learns from the rows that there is something to look for."""
    monkeypatch.setattr(TypeHost, "_told_of_due", lambda *_: None)
    await travel(200)
    await Echo.ref("1").say.durably("found")
    await until(lambda: words(cluster) == ["found"], seconds=40)


async def test_a_thread_stores_at_once(cluster: MemoryCluster) -> None:
    def store() -> None:
        Echo.ref("1").say.durably("a")
        Echo.ref("1").sync.say.durably("b")  # type: ignore[attr-defined]

    await asyncio.to_thread(store)
    await until(lambda: words(cluster) == ["a", "b"])


async def test_a_timer_fires_at_its_time_and_nothing_waits_behind_it(cluster: MemoryCluster) -> None:
    began = cluster.loop.time()
    await Echo.ref("1").end.later(after=60)
    await Echo.ref("1").say.later(timedelta(seconds=30), "half")
    await Echo.ref("1").say.durably("now")
    await until(lambda: words(cluster) == ["now"])
    await until(lambda: words(cluster) == ["now", "half"], seconds=40)
    assert cluster.loop.time() - began >= 29
    await until(lambda: words(cluster) == ["now", "half", "end"], seconds=40)
    assert cluster.loop.time() - began >= 59


async def test_what_was_stored_without_a_wake_up_is_found(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its shard has never had a home: the process that has stored it has ended at once."""
    monkeypatch.setattr(ClusterGateway, "tell", lambda *_: None)
    await Echo.ref("1").say.durably("heard")
    await until(lambda: words(cluster) == ["heard"], seconds=90)
    await Echo.ref("1").say.durably("and again")
    await until(lambda: words(cluster) == ["heard", "and again"], seconds=90)


async def test_a_time_in_the_past_is_due_now(cluster: MemoryCluster) -> None:
    await Echo.ref("1").end.later(at=datetime(2020, 1, 1, tzinfo=UTC))
    await until(lambda: words(cluster) == ["end"])


async def test_what_cannot_be_stored_is_refused_at_the_call(cluster: MemoryCluster) -> None:
    ref = Echo.ref("1")
    with pytest.raises(InvalidCall, match="said is a query"):
        ref.said.durably()
    with pytest.raises(InvalidCall, match="command_id"):
        Echo.ref("1", command_id="x").end.durably()
    with pytest.raises(InvalidCall, match="argument 'word'"):
        ref.say.durably(5)  # type: ignore[arg-type]
    with pytest.raises(InvalidCall, match="takes the time first"):
        ref.say.later(after=5, word="x")  # type: ignore[call-arg]
    with pytest.raises(InvalidCall, match="has no time zone"):
        ref.end.later(at=datetime(2030, 1, 1))  # noqa: DTZ001
    with pytest.raises(InvalidCall, match="not both"):
        ref.end.later(at=datetime.now(UTC), after=5)  # type: ignore[call-overload]
    with pytest.raises(InvalidCall, match="say when"):
        ref.end.later()  # type: ignore[call-overload]
    with pytest.raises(InvalidCall, match="from 0 seconds"):
        ref.end.later(after=-1)
