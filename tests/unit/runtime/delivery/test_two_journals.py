"""Messages between entities of two journals take effect once, whatever is lost in between."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio

from sharding_app.ports.journal import JournalUnavailable
from sharding_app.protocol.delivery.deliveries import BackOff
from sharding_app.protocol.ids import shard_of
from sharding_app.protocol.records import ShardRow
from sharding_app.runtime.base.config import DeliverySettings, NodeConfig
from tests.unit.runtime.delivery.shop import Owner, Passing, Target
from tests.unit.runtime.delivery.test_messages import TOO_LARGE
from tests.unit.runtime.delivery.two_journals import AskedCluster
from tests.unit.runtime.two_journals import SECOND, SHARDS, some
from tests.unit.runtime.waiting import travel, until

pytestmark = pytest.mark.asyncio

CONFIG = NodeConfig(
    deliveries=DeliverySettings(
        back_off=BackOff(failures=3, first_seconds=0.05, again_seconds=0.02), answer_seconds=2.0,
        net_seconds=5.0,
    ),
    number_of_shards=SHARDS,
)  # fmt: skip
OWNER, TARGET = "delivery.Owner", "delivery.Target"
NEAR, FAR = some("", 1, OWNER)[0], some(SECOND, 1, TARGET)[0]
"""Ids of an owner whose rows lie in the first journal, and of a target of the second one."""
PAIRS = {
    (of, to): (some(of, 1, OWNER)[0], some(to, 1, TARGET)[0]) for of in ("", SECOND) for to in ("", SECOND)
}
"""Ids of an owner and a target, by the journals of their rows."""


@pytest_asyncio.fixture
async def cluster(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AskedCluster]:
    monkeypatch.setattr(Target, "failing", 0)
    monkeypatch.setattr(Target, "attempts", [])
    monkeypatch.setattr(Passing, "taken", [])
    async with AskedCluster([Owner, Target, Passing], nodes=2, config=CONFIG) as made:
        with made.in_use():
            yield made


async def noted(of: type[Owner] | type[Target], name: str, *expected: str) -> None:
    """Wait until an entity has noted these texts, and no others."""

    async def texts() -> list[str]:
        return await of.ref(name).seen()

    for _ in range(3000):
        if len(await texts()) >= len(expected):
            break
        await travel(0.01)
    assert await texts() == [*expected]


async def nothing_left(cluster: AskedCluster) -> None:
    """Wait until no message waits, and no mark is left."""
    await until(lambda: not (cluster.rows("") or cluster.rows(SECOND)))
    await until(lambda: not (cluster.marks("") or cluster.marks(SECOND)))


def away(cluster: AskedCluster, method: str, journal: str) -> Callable[[], None]:
    """Let a journal give no answer to these questions. Call the result to end that."""
    gone = True

    async def before(asked: str, of: str) -> None:
        if gone and (asked, of) == (method, journal):
            raise JournalUnavailable("away")

    cluster.before = before

    def end() -> None:
        nonlocal gone
        gone = False

    return end


@pytest.mark.parametrize(("of", "to"), PAIRS)
async def test_messages_arrive_once_and_in_order_and_leave_nothing(
    cluster: AskedCluster, of: str, to: str
) -> None:
    owner, target = PAIRS[of, to]
    texts = [f"t{number}" for number in range(12)]
    await Owner.ref(owner).send_to(target, texts[:5])
    await Owner.ref(owner).send_to(target, texts[5:])
    await noted(Target, target, *(f"{each} from {owner}" for each in texts))
    assert Target.attempts == texts
    await nothing_left(cluster)
    asked = {each for each in cluster.asked if each[0] != "marks"}
    assert asked == (
        set() if of == to else {*(("standing", each) for each in (of, to)), ("discard", of), ("unmark", to)}
    )


@pytest.mark.parametrize(("of", "to"), [("", SECOND), (SECOND, "")])
async def test_a_reply_comes_back_to_the_other_journal(cluster: AskedCluster, of: str, to: str) -> None:
    owner, target = PAIRS[of, to]
    await Owner.ref(owner).ask(target, "x")
    await noted(Owner, owner, "asked", "reply 1")
    await Owner.ref(owner).ask(target, "bad")
    await noted(Owner, owner, "asked", "reply 1", "asked", "refused bad_text bad")
    await nothing_left(cluster)


async def test_a_bug_in_a_question_costs_one_attempt(cluster: AskedCluster) -> None:
    """The message comes again, and the target's mailbox goes on meanwhile."""
    asked = 0

    async def before(method: str, _: str) -> None:
        nonlocal asked
        asked += method == "standing"
        if method == "standing" and asked == 1:
            raise ZeroDivisionError("a bug")

    cluster.before = before
    await Owner.ref(NEAR).send_to(FAR, ["x"])
    await until(lambda: asked == 1)
    await Target.ref(FAR).take("beside")
    await noted(Target, FAR, "beside", f"x from {NEAR}")
    await nothing_left(cluster)


async def test_timers_are_asked_of_no_other_journal(cluster: AskedCluster) -> None:
    owner = some(SECOND, 1, OWNER)[0]
    await Owner.ref(owner).schedule_in(0.1, "rang")
    await noted(Owner, owner, "rang")
    assert {method for method, _ in cluster.asked} <= {"marks"}


async def test_a_message_from_outside_lies_in_the_clusters_journal(cluster: AskedCluster) -> None:
    await Target.ref(FAR).take.durably("now")
    await Target.ref(FAR).take.later(timedelta(seconds=1), "later")
    await noted(Target, FAR, "now", "later")
    await nothing_left(cluster)


@pytest.mark.parametrize("together", [True, False])
async def test_a_message_that_has_taken_effect_is_ended_by_the_next_home_of_its_owner(
    cluster: AskedCluster, *, together: bool
) -> None:
    """The former one died between the commit of the target and the end of the row. `together`: it
    was the home of the target too.
    """
    away(cluster, "discard", "")
    await Target.ref(FAR).take("first")
    home = cluster.home_of(Target, FAR)
    for owner in some("", 200, OWNER):
        await Owner.ref(owner).seen()
        if (cluster.home_of(Owner, owner) == home) is together:
            break
    assert (cluster.home_of(Owner, owner) == home) is together
    await Owner.ref(owner).ask(FAR, "x")
    await until(lambda: cluster.marks(SECOND))
    await cluster.kill_node(cluster.home_of(Owner, owner))
    cluster.before = None
    await noted(Owner, owner, "asked", "reply 2")
    await noted(Target, FAR, "first", f"x from {owner}")
    await nothing_left(cluster)


async def test_a_failure_is_not_told_of_a_message_that_has_taken_effect(
    cluster: AskedCluster,
) -> None:
    """The handler fails in a second delivery. The first one has taken effect."""
    away(cluster, "discard", "")
    await Owner.ref(NEAR).ask(FAR, "x")
    await until(lambda: cluster.marks(SECOND))
    Target.failing = 1000
    await cluster.kill_node(cluster.home_of(Owner, NEAR))
    cluster.before = None
    await until(lambda: not cluster.rows(""))
    Target.failing = 0
    await noted(Owner, NEAR, "asked", "reply 1")
    assert await Target.ref(FAR).seen() == [f"x from {NEAR}"]
    assert len(Target.attempts) == 2
    await nothing_left(cluster)


async def test_a_node_that_cannot_send_a_message_does_not_give_it_back(cluster: AskedCluster) -> None:
    """It has taken effect. The next home of its owner is refused for the target's type."""
    away(cluster, "discard", "")
    await Owner.ref(NEAR).ask(FAR, "x")
    await until(lambda: cluster.marks(SECOND))
    for node in cluster.nodes.values():
        node.refused[TARGET] = node.configs[TARGET]
    await cluster.kill_node(cluster.home_of(Owner, NEAR))
    cluster.before = None
    rows = cluster.server.messages.rows
    await until(lambda: [each.parked for each in rows.values()] == [True])
    for node in cluster.nodes.values():
        node.refused.clear()
    (stored,) = rows.values()
    assert stored.error.startswith("bad_call: ")
    cluster.server.messages.put(stored._replace(parked=False, error="", failures=0))
    await nothing_left(cluster)
    await noted(Owner, NEAR, "asked", "reply 1")
    await noted(Target, FAR, f"x from {NEAR}")


async def test_a_reply_that_is_too_large_is_a_failure_that_is_given_back(cluster: AskedCluster) -> None:
    """The home of the target has told it, after a look for a mark."""
    await Owner.ref(NEAR).ask_for(FAR, "x", TOO_LARGE)
    await noted(Owner, NEAR, "refused arguments_too_large x")
    assert await Target.ref(FAR).seen() == []
    await nothing_left(cluster)


async def test_the_failure_of_a_message_waits_for_the_journal_of_its_target(
    cluster: AskedCluster,
) -> None:
    end = away(cluster, "marked", SECOND)
    await Owner.ref(NEAR).ask(FAR, "bad")
    await until(lambda: len(Target.attempts) > 2)
    assert await Owner.ref(NEAR).seen() == ["asked"]
    end()
    await noted(Owner, NEAR, "asked", "refused bad_text bad")


async def test_a_message_waits_while_the_journal_of_its_row_does_not_answer(
    cluster: AskedCluster,
) -> None:
    end = away(cluster, "standing", "")
    await Owner.ref(NEAR).send_to(FAR, ["x"])
    await until(lambda: cluster.asked.count(("standing", "")) > 3)
    assert Target.attempts == []
    end()
    await noted(Target, FAR, f"x from {NEAR}")


async def test_a_row_that_is_gone_runs_no_handler(cluster: AskedCluster) -> None:
    """A delivery may come late, after the mark was removed."""
    seen = asyncio.Event()
    goes_on = asyncio.Event()

    async def before(method: str, journal: str) -> None:
        if method == "standing":
            seen.set()
            await goes_on.wait()

    cluster.before = before
    await Owner.ref(NEAR).send_to(FAR, ["x"])
    await seen.wait()
    cluster.server.messages.rows.clear()
    goes_on.set()
    await until(lambda: not cluster.pending)
    assert Target.attempts == []
    assert await Target.ref(FAR).seen() == []


async def test_a_handler_that_fails_after_a_part_parks_its_message_until_an_operator_decides(
    cluster: AskedCluster,
) -> None:
    """Its mark goes then: the operator may let the handler run again, as in one journal."""
    Target.failing = 1
    await Owner.ref(NEAR).step_to(FAR, "x")
    await until(lambda: any(each.parked for each in cluster.server.messages.rows.values()))
    (stored,) = cluster.server.messages.rows.values()
    assert stored.error.startswith("partly_applied: ")
    await noted(Target, FAR, "x 1")
    await until(lambda: not cluster.marks(SECOND))
    Target.failing = 0
    cluster.server.messages.put(stored._replace(parked=False, error="", failures=0))
    await noted(Target, FAR, "x 1", "x 1", "x 2")
    await nothing_left(cluster)


async def test_a_part_that_was_committed_before_parks_the_message_and_runs_no_further(
    cluster: AskedCluster,
) -> None:
    """The home of its owner died before it heard of the first delivery."""
    away(cluster, "park", "")
    Target.failing = 1
    await Owner.ref(NEAR).step_to(FAR, "x")
    await until(lambda: ("park", "") in cluster.asked)
    await cluster.kill_node(cluster.home_of(Owner, NEAR))
    Target.failing = 0
    cluster.before = None
    await until(lambda: any(each.parked for each in cluster.server.messages.rows.values()))
    await noted(Target, FAR, "x 1")


async def test_a_handler_with_steps_is_marked_once(cluster: AskedCluster) -> None:
    await Owner.ref(NEAR).step_to(FAR, "x")
    await noted(Target, FAR, "x 1", "x 2")
    await nothing_left(cluster)


async def test_an_entity_in_memory_takes_a_message_of_another_journal(cluster: AskedCluster) -> None:
    await Owner.ref(NEAR).tell_memory(FAR, "x")
    await Owner.ref(some(SECOND, 1, OWNER)[0]).tell_memory(FAR, "y")
    await until(lambda: len(Passing.taken) == 2)
    assert sorted(Passing.taken) == ["x", "y"]
    await nothing_left(cluster)


async def test_a_mark_stays_while_its_row_is_there(cluster: AskedCluster) -> None:
    end = away(cluster, "discard", "")
    await Owner.ref(NEAR).send_to(FAR, ["x"])
    await until(lambda: cluster.marks(SECOND))
    await travel(60.0)
    assert len(cluster.marks(SECOND)) == 1
    end()
    await nothing_left(cluster)


async def test_the_marks_of_a_journal_that_does_not_answer_stay(cluster: AskedCluster) -> None:
    await Owner.ref(NEAR).send_to(FAR, ["x"])
    await noted(Target, FAR, f"x from {NEAR}")
    end = away(cluster, "standing", "")
    await travel(60.0)
    assert len(cluster.marks(SECOND)) == 1
    end()
    await nothing_left(cluster)


async def test_the_mark_of_a_row_that_has_moved_to_another_journal_stays(cluster: AskedCluster) -> None:
    """It names the journal in which the row lay when the message took effect."""
    end = away(cluster, "discard", "")
    await Owner.ref(NEAR).send_to(FAR, ["x"])
    await until(lambda: cluster.marks(SECOND))
    (message,) = cluster.marks(SECOND)
    row = cluster.server.messages.pop(message)
    assert row is not None
    cluster.second.messages.put(row)
    await travel(60.0)
    assert cluster.marks(SECOND) == [message]
    cluster.second.messages.pop(message)
    end()
    await nothing_left(cluster)


async def test_marks_stay_while_a_journal_is_used_that_this_node_does_not_know(cluster: AskedCluster) -> None:
    """The row may have moved there with its shard."""
    shards, journals = cluster.server.cluster.shards, cluster.server.cluster.journals
    await Owner.ref(NEAR).seen()
    there = OWNER, next(each for each in range(SHARDS) if (OWNER, each) not in shards)
    shards[there], journals[there] = ShardRow(*there, 1, None, "stopped"), "third"
    await Owner.ref(NEAR).send_to(FAR, ["x"])
    await noted(Target, FAR, f"x from {NEAR}")
    await travel(60.0)
    assert len(cluster.marks(SECOND)) == 1
    journals[there] = ""
    await nothing_left(cluster)


async def test_a_mark_goes_when_no_failover_can_bring_its_row_back(cluster: AskedCluster) -> None:
    await Owner.ref(NEAR).send_to(FAR, ["x"])
    await until(lambda: cluster.marks(SECOND) and not cluster.rows(""))
    cluster.server.standby.part()
    await travel(60.0)
    assert len(cluster.marks(SECOND)) == 1
    cluster.server.standby.join()
    await nothing_left(cluster)


async def test_a_journal_that_is_not_used_is_not_asked_for_rows(cluster: AskedCluster) -> None:
    """Its database may be another one, which has no such row."""
    await Owner.ref(NEAR).seen()
    await Target.ref(FAR).seen()
    node = cluster.nodes[cluster.home_of(Target, FAR)]
    with pytest.raises(JournalUnavailable, match="does not name it"):
        node.hosting._journal_named("unknown")
    part = node.hosting.parts[1]
    assert node.hosting._journal_named(SECOND) is part.journal
    part.trouble = "its database belongs to another cluster"
    with pytest.raises(JournalUnavailable, match="another cluster"):
        node.hosting._journal_named(SECOND)


async def test_the_mark_of_a_message_in_hand_stays(cluster: AskedCluster) -> None:
    """A second delivery has found the row just before it was deleted."""
    await Owner.ref(NEAR).send_to(FAR, ["x"])
    await until(lambda: cluster.marks(SECOND))
    (message,) = cluster.marks(SECOND)
    node = cluster.nodes[cluster.home_of(Target, FAR)]
    shard = shard_of(FAR, SHARDS)
    host = node.hosting.host_at(TARGET, shard)
    assert host is not None
    foreign = host.execution.foreign
    assert foreign is not None

    class Command:
        is_over = False
        message: Any

    command = Command()
    command.message = type(
        "", (), {"delivery": type("", (), {"id": message}), "shard": shard_of(FAR, SHARDS)}
    )
    foreign.hold(command)
    await travel(60.0)
    assert cluster.marks(SECOND) == [message]
    command.is_over = True
    await nothing_left(cluster)


async def test_shards_without_marks_are_looked_at_once(cluster: AskedCluster) -> None:
    await Owner.ref(NEAR).send_to(FAR, ["x"])
    await noted(Target, FAR, f"x from {NEAR}")
    await nothing_left(cluster)
    await travel(20.0)
    cluster.asked.clear()
    await travel(20.0)
    assert cluster.asked == []
    await Owner.ref(NEAR).send_to(FAR, ["y"])
    await noted(Target, FAR, f"x from {NEAR}", f"y from {NEAR}")
    await nothing_left(cluster)
    assert ("marks", SECOND) in cluster.asked
    assert ("marks", "") not in cluster.asked
