"""Durable messages between entities of a cluster in memory: order, replies, failures, crashes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

import pytest
import pytest_asyncio

from sharding_app import Rejected
from sharding_app.errors import EntityFailed, NotSerializable, PartiallyApplied
from sharding_app.ports.deliveries import Claim, MessageRow, TimerKey
from sharding_app.ports.journal import Erasure, JournalUnavailable
from sharding_app.protocol.builtin_commands import DUE
from sharding_app.protocol.call import Call
from sharding_app.protocol.delivery.deliveries import BackOff
from sharding_app.protocol.ids import shard_of
from sharding_app.protocol.link.limits import LinkLimits
from sharding_app.protocol.messages import Deliver
from sharding_app.runtime.base.config import DeliverySettings, NodeConfig
from sharding_app.testing.cluster import MemoryCluster
from tests.support.slack import SLACK
from tests.unit.runtime.delivery.shop import Owner, Passing, Target
from tests.unit.runtime.waiting import travel

pytestmark = pytest.mark.asyncio

SETTINGS = DeliverySettings(
    back_off=BackOff(failures=3, first_seconds=0.05, again_seconds=0.02), answer_seconds=2.0
)
TOO_LARGE = LinkLimits().max_message_bytes
CONFIG = NodeConfig(deliveries=SETTINGS, number_of_shards=16)


@pytest_asyncio.fixture
async def cluster(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MemoryCluster]:
    monkeypatch.setattr(Target, "failing", 0)
    monkeypatch.setattr(Target, "attempts", [])
    monkeypatch.setattr(Passing, "taken", [])
    async with MemoryCluster([Owner, Target, Passing], nodes=2, config=CONFIG) as made:
        with made.in_use():
            yield made


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds * SLACK):
        while not await condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.01)


async def seen(of: type[Owner] | type[Target], name: str, expected: list[str]) -> None:
    """Wait until an entity has noted these texts, and no others."""

    async def is_there() -> bool:
        return len(await of.ref(name).seen()) >= len(expected)

    try:
        await until(is_there)
    finally:
        assert await of.ref(name).seen() == expected


def rows(cluster: MemoryCluster) -> list[str]:
    return [each.row.command for each in cluster.server.messages.rows.values()]


async def no_rows(cluster: MemoryCluster) -> None:
    async def none() -> bool:
        return not rows(cluster)

    await until(none)


def elsewhere(cluster: MemoryCluster, of: type[Owner] | type[Target], node: str) -> list[str]:
    """Return ids whose home is that node."""
    return [str(number) for number in range(100) if cluster.home_of(of, str(number)) == node]


async def test_a_message_arrives_after_the_commit_with_its_sender(cluster: MemoryCluster) -> None:
    await Owner.ref("a").send_to("b", ["hello"])
    await seen(Target, "b", ["hello from a"])
    await no_rows(cluster)


async def test_messages_of_a_pair_arrive_in_the_order_of_staging(cluster: MemoryCluster) -> None:
    texts = [f"t{number}" for number in range(50)]
    for start in range(0, 50, 10):
        await Owner.ref("a").send_to("b", texts[start : start + 10])
    await seen(Target, "b", [f"{text} from a" for text in texts])


async def test_a_command_that_fails_sends_nothing(cluster: MemoryCluster) -> None:
    with pytest.raises(Rejected):
        await Owner.ref("a").fail_after_sending("b")
    assert rows(cluster) == []
    await Owner.ref("a").send_to("b", ["after"])
    await seen(Target, "b", ["after from a"])


@pytest.mark.parametrize("how", ["store_for", "store_for_later", "store_in_a_thread"])
async def test_an_entity_stores_nothing_beside_its_events(cluster: MemoryCluster, how: str) -> None:
    """It would stay if the command failed. In a `def` it would not be stored at all."""
    with pytest.raises(EntityFailed, match=r"use self\.send"):
        await getattr(Owner.ref("a"), how)("b")
    assert rows(cluster) == []


async def test_a_message_that_is_too_large_to_be_delivered_is_not_stored(cluster: MemoryCluster) -> None:
    """It would fail at each attempt, and end up before an operator."""
    with pytest.raises(NotSerializable, match="send less at a time") as caught:
        await Owner.ref("a").send_large("b", TOO_LARGE, True)
    assert caught.value.code == "arguments_too_large"
    with pytest.raises(PartiallyApplied, match="send less at a time"):
        await Owner.ref("b").send_large("b", TOO_LARGE, False)
    with pytest.raises(NotSerializable, match="send less at a time"):
        await Target.ref("b").take.durably("x" * TOO_LARGE)
    await Owner.ref("a").send_large("b", TOO_LARGE - 10_000, True)
    await no_rows(cluster)
    assert await Owner.ref("a").seen() == []
    assert await Owner.ref("b").seen() == ["first"]


async def test_a_reply_that_is_too_large_to_be_delivered_is_a_failure(cluster: MemoryCluster) -> None:
    await Owner.ref("a").ask_for("b", "x", TOO_LARGE)
    await seen(Owner, "a", ["refused arguments_too_large x"])
    assert await Target.ref("b").seen() == []
    await no_rows(cluster)


async def test_a_reply_comes_back_as_a_command(cluster: MemoryCluster) -> None:
    await Owner.ref("a").ask("b", "x")
    await seen(Owner, "a", ["asked", "reply 1"])
    await no_rows(cluster)


async def test_a_rejected_message_goes_to_the_handler_that_the_sender_names(cluster: MemoryCluster) -> None:
    await Owner.ref("a").ask("b", "bad")
    await seen(Owner, "a", ["asked", "refused bad_text bad"])
    assert Target.attempts == ["bad"]
    await no_rows(cluster)


async def test_a_target_that_fails_is_tried_again_and_then_parked(cluster: MemoryCluster) -> None:
    Target.failing = 3
    await Owner.ref("a").send_to("b", ["one", "two"])
    await seen(Target, "b", ["two from a"])
    assert Target.attempts == ["one", "one", "one", "two"]
    (stored,) = cluster.server.messages.rows.values()
    assert (stored.parked, stored.failures) == (True, 3)
    assert "RuntimeError" in stored.error or "EntityFailed" in stored.error or "entity_failed" in stored.error


async def test_a_target_that_recovers_gets_its_messages_in_order(cluster: MemoryCluster) -> None:
    Target.failing = 2
    await Owner.ref("a").send_to("b", ["one", "two"])
    await seen(Target, "b", ["one from a", "two from a"])
    await no_rows(cluster)


async def test_an_operator_need_not_wait_for_the_end_of_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test ends long before the pause does."""
    monkeypatch.setattr(Target, "failing", 1)
    monkeypatch.setattr(Target, "attempts", [])
    patient = DeliverySettings(back_off=BackOff(first_seconds=9.0))
    config = NodeConfig(deliveries=patient, number_of_shards=16)
    async with MemoryCluster([Owner, Target], nodes=2, config=config) as made:
        with made.in_use() as gateway:
            await Owner.ref("a").send_to("b", ["one", "two"])

            async def set_aside() -> bool:
                return any(each.error for each in made.server.messages.rows.values())

            await until(set_aside)
            (waits,) = [each for each in made.server.messages.rows.values() if each.error]
            made.server.messages.rows[waits.row.id] = waits._replace(
                due=waits.due - timedelta(seconds=9), error=""
            )
            gateway.tell(Call("delivery.Owner", "a", DUE, waits.row.id.encode(), tell=True))
            began = made.loop.time()
            await seen(Target, "b", ["one from a", "two from a"])
            assert made.loop.time() - began < 5
            await no_rows(made)


async def test_a_message_to_an_erased_entity_starts_one_without_a_past(cluster: MemoryCluster) -> None:
    """It is its sender's. What the erased entity has sent goes with it."""
    await Target.ref("b").take("before")
    Target.failing = 1000
    await Owner.ref("a").send_to("b", ["after"])
    await Owner.ref("b").schedule_in(3600.0, "never")
    for of, name in ((Target, "delivery.Target"), (Owner, "delivery.Owner")):
        host = cluster.nodes[cluster.home_of(of, "b")].hosts[name]
        assert isinstance(await host.erasing.erase(shard_of("b", 16), "b", "an operator"), Erasure)
    Target.failing = 0
    await seen(Target, "b", ["after from a"])
    assert cluster.server.messages.rows == {}


async def test_a_handler_that_stores_nothing_ends_its_message(cluster: MemoryCluster) -> None:
    await Owner.ref("a").send_to("b", ["silent", "loud"])
    await seen(Target, "b", ["loud from a"])
    assert Target.attempts == ["silent", "loud"]
    await no_rows(cluster)


async def test_an_in_memory_target_and_an_in_memory_sender(cluster: MemoryCluster) -> None:
    await Owner.ref("a").tell_memory("p", "x")
    await Passing.ref("p").pass_on("b", "y")
    await seen(Target, "b", ["y from p"])
    await no_rows(cluster)
    assert Passing.taken == ["x"]


async def test_a_message_is_not_stored_again_behind_its_own_delivery(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to a store is lost, and a page has the row before the store is repeated."""
    passing = Passing._sharding_type
    assert passing is not None
    await Passing.ref("p").pass_on("b", "before")
    await seen(Target, "b", ["before from p"])
    await no_rows(cluster)
    node = cluster.nodes[cluster.home_of(Passing, "p")]
    host, journal = node.hosts[passing.name], node.node_ports.journal
    [shard] = [each for each in host.shards.values() if "p" in each.slots]
    calls = 0

    async def stage(sends: Sequence[MessageRow], cancels: Sequence[TimerKey], claim: Claim) -> datetime:
        nonlocal calls
        calls += 1
        at = await journal_stage(sends, cancels, claim=claim)
        if calls == 1:
            node.hosting.parts[0].deliverer.look(passing, host.execution.type_id, shard.number, shard.epoch)
            await travel(1.0)
            raise JournalUnavailable("its answer is lost")
        return at

    journal_stage = journal.stage
    monkeypatch.setattr(journal, "stage", stage)
    await Passing.ref("p").pass_on("b", "y")
    await seen(Target, "b", ["before from p", "y from p"])
    await travel(5.0)
    await seen(Target, "b", ["before from p", "y from p"])
    await no_rows(cluster)
    assert calls == 2


async def test_messages_of_an_entity_in_memory_keep_their_order_when_it_is_made_anew(
    cluster: MemoryCluster,
) -> None:
    Target.failing = 2
    for text in ("one", "two"):
        await Passing.ref("p").pass_on("b", text)
    await Passing.ref("p").rest()
    await Passing.ref("p").pass_on("b", "three")
    await seen(Target, "b", ["one from p", "two from p", "three from p"])


@pytest.mark.parametrize("which", ["owner", "target"])
async def test_the_crash_of_a_node_loses_and_doubles_nothing(cluster: MemoryCluster, which: str) -> None:
    owners = [str(number) for number in range(20)]
    for each in owners:
        await Owner.ref(each).send_to(f"to {each}", ["first"])
    await asyncio.gather(*(Owner.ref(each).send_to(f"to {each}", ["one", "two", "three"]) for each in owners))
    victim = cluster.home_of(Owner, "0") if which == "owner" else cluster.home_of(Target, "to 0")
    await cluster.kill_node(victim)
    texts = ("first", "one", "two", "three")
    for each in owners:
        await seen(Target, f"to {each}", [f"{text} from {each}" for text in texts])
    await no_rows(cluster)
    await travel(10.0)
    for each in owners:
        await seen(Target, f"to {each}", [f"{text} from {each}" for text in texts])


async def test_a_full_restart_delivers_what_was_committed(cluster: MemoryCluster) -> None:
    with cluster.writes_wait():
        asked = asyncio.ensure_future(Owner.ref("a").send_to("b", ["one"]))
        await asyncio.sleep(0)
    await asked
    for name in list(cluster.nodes):
        await cluster.kill_node(name)
    await cluster.add_node()
    await seen(Target, "b", ["one from a"])
    await no_rows(cluster)


async def test_a_shard_that_moves_takes_its_messages_along(cluster: MemoryCluster) -> None:
    Target.failing = 2
    await Owner.ref("a").send_to("b", ["one", "two"])
    await cluster.stop_node(cluster.home_of(Owner, "a"))
    await seen(Target, "b", ["one from a", "two from a"])
    await no_rows(cluster)


async def test_a_message_to_a_handler_with_commits_in_its_middle(cluster: MemoryCluster) -> None:
    await Owner.ref("a").step_to("b", "x")
    await seen(Target, "b", ["x 1", "x 2"])
    await no_rows(cluster)


async def test_a_message_whose_answer_is_lost_takes_effect_once(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await Target.ref("b").take("before")
    replies = cluster.nodes[cluster.home_of(Target, "b")].hosts["delivery.Target"].execution.replies
    answer = replies.answer
    lost: list[str] = []

    def lose_the_first(source: str, message: Deliver, value: bytes) -> None:
        if message.delivery is not None and not lost:
            lost.append(message.delivery.id)
        else:
            answer(source, message, value)

    monkeypatch.setattr(replies, "answer", lose_the_first)
    await Owner.ref("a").send_to("b", ["one", "two"])
    await seen(Target, "b", ["before", "one from a", "two from a"])
    assert Target.attempts == ["before", "one", "one", "two"]
    assert len(lost) == 1
    await no_rows(cluster)


@pytest.mark.parametrize("text", ["good", "bad"])
async def test_an_answer_counts_that_comes_after_the_shard_has_moved(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    await Target.ref("b").take("before")
    await Owner.ref("a").seen()
    replies = cluster.nodes[cluster.home_of(Target, "b")].hosts["delivery.Target"].execution.replies
    deliverer = cluster.nodes[cluster.home_of(Owner, "a")].hosting.parts[0].deliverer
    late: list[Callable[[], None]] = []

    def hold(answer: Callable[..., None]) -> Callable[..., None]:
        return lambda *args: late.append(partial(answer, *args))

    with monkeypatch.context() as held:
        held.setattr(replies, "answer", hold(replies.answer))
        held.setattr(replies, "fail", hold(replies.fail))
        owner = asyncio.ensure_future(Owner.ref("a").send_to("b", [text]))

        async def is_held() -> bool:
            return bool(late)

        await until(is_held)
    await owner
    for type_id, shard in list(deliverer._homes):
        deliverer.forget(type_id, shard)
    assert (deliverer.figures.delivered, deliverer.figures.failures) == (0, 0)
    late.pop()()

    async def is_counted() -> bool:
        return deliverer.figures.delivered + deliverer.figures.failures == 1

    await until(is_counted)
    assert deliverer.figures.delivered == (text == "good")


async def test_a_home_that_is_cut_off_delivers_nothing_beside_its_successor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All failures may meet one message: it is not parked for them."""
    monkeypatch.setattr(Target, "failing", 15)
    monkeypatch.setattr(Target, "attempts", [])
    patient = replace(SETTINGS, back_off=BackOff(failures=16, first_seconds=0.05, again_seconds=0.02))
    config = NodeConfig(deliveries=patient, number_of_shards=16)
    owners = [str(number) for number in range(10)]
    async with MemoryCluster([Owner, Target], nodes=2, config=config) as cluster:
        with cluster.in_use():
            await asyncio.gather(*(Owner.ref(each).send_to(f"to {each}", ["one", "two"]) for each in owners))
            former = cluster.nodes[cluster.home_of(Owner, "0")]
            cluster.cut_off(former.config.name)
            del cluster.nodes[former.config.name]
            try:
                for each in owners:
                    await seen(Target, f"to {each}", [f"{text} from {each}" for text in ("one", "two")])
                await no_rows(cluster)
            finally:
                await former.close()


async def test_a_type_without_messages_asks_the_journal_nothing_more(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    for node in cluster.nodes.values():
        for name in ("due", "stage", "discard", "overdue"):
            monkeypatch.setattr(node.node_ports.journal, name, lambda *_, name=name, **__: asked.append(name))
    await Target.ref("b").take("x")
    await cluster.add_node()
    await Target.ref("c").take("x")
    await travel(1000)
    assert asked == []
    assert all(node.hosting.parts[0].deliverer.pending == 0 for node in cluster.nodes.values())
