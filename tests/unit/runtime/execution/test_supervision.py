"""What becomes of an entity whose handler raised."""

import asyncio
from datetime import timedelta
from typing import Any, ClassVar

import pytest

from sharding_app import (
    Entity,
    EntityFailed,
    EventSourced,
    ShardingSettings,
    Supervision,
    applies,
    command,
    event,
    query,
)
from sharding_app.protocol.supervision import Failures
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.counter_cluster import until

pytestmark = pytest.mark.asyncio


class Worse(KeyError):
    pass


@event
class Counted:
    by: int


class Shaky(EventSourced):
    """`notes` is transient: whether the object was rebuilt shows in it."""

    count: int
    settings = ShardingSettings(
        number_of_shards=1,
        supervision=Supervision(
            {KeyError: "resume", ValueError: "stop", OSError: "escalate"},
            backoff_seconds=0.02,
            max_backoff_seconds=0.05,
        ),
    )

    def __init__(self) -> None:
        self.count = 0
        self._notes: list[str] = []

    @command
    def note(self, text: str) -> None:
        self._notes.append(text)

    @command
    def fail(self, kind: str, staged: bool = False) -> None:
        if staged:
            self.persist(Counted(1))
        errors = {"key": KeyError, "worse": Worse, "value": ValueError, "os": OSError, "type": TypeError}
        raise errors[kind]("boom")

    @command
    def add(self, by: int) -> int:
        self.persist(Counted(by))
        return self.count

    @query
    def notes(self) -> list[str]:
        return self._notes

    @query
    def total(self) -> int:
        return self.count

    @applies(Counted)
    def on_counted(self, happened: Counted) -> None:
        self.count += happened.by


@pytest.mark.parametrize(
    ("kind", "staged", "kept"),
    [
        ("key", False, True),
        ("worse", False, True),
        ("key", True, False),
        ("value", False, False),
        ("type", False, True),
        ("type", True, False),
    ],
)
async def test_the_rule_of_the_nearest_class_counts(kind: str, staged: bool, kept: bool) -> None:
    async with MemoryCluster([Shaky]) as cluster:
        with cluster.in_use():
            ref = Shaky.ref("1")
            await ref.add(3)
            await ref.note("here")
            with pytest.raises(EntityFailed, match="boom"):
                await ref.fail(kind, staged)
            assert await ref.notes() == (["here"] if kept else [])
            assert await ref.total() == 3, "what was stored stays, what was staged does not"


async def test_escalation_rebuilds_the_idle_entities_of_the_shard_too() -> None:
    async with MemoryCluster([Shaky]) as cluster:
        with cluster.in_use():
            await Shaky.ref("other").note("here")
            with pytest.raises(EntityFailed):
                await Shaky.ref("1").fail("os")
            assert await Shaky.ref("other").notes() == []


class Remembered(Shaky, name="tests.RememberedShaky"):
    settings = ShardingSettings(
        number_of_shards=1, remember_entities=True, supervision=Supervision({OSError: "escalate"})
    )


async def test_escalation_leaves_no_remembered_entity_behind() -> None:
    async with MemoryCluster([Remembered], nodes=1) as cluster:
        with cluster.in_use():
            for each in ("other", "third"):
                await Remembered.ref(each).note("here")
            with pytest.raises(EntityFailed):
                await Remembered.ref("1").fail("os")
            await until(
                lambda: all(cluster.is_in_memory(Remembered, each) for each in ("1", "other", "third"))
            )
            assert await Remembered.ref("other").notes() == []


async def test_one_that_keeps_failing_keeps_its_place_and_others_go_on() -> None:
    async with MemoryCluster([Shaky]) as cluster:
        with cluster.in_use():
            for _ in range(5):
                with pytest.raises(EntityFailed):
                    await Shaky.ref("bad").fail("type")
                assert await Shaky.ref("good").add(1) >= 1
            assert await Shaky.ref("bad").add(1) == 1
            (node,) = cluster.nodes.values()
            (host,) = node.hosts.values()
            assert host.execution.counters["handler_failed"] == 5


PATIENT = Supervision(backoff_seconds=3600.0, max_backoff_seconds=3600.0)


class Plain(EventSourced):
    """As its author left it: no rule says what becomes of it."""

    settings = ShardingSettings(number_of_shards=1, supervision=PATIENT)
    count: int = 0

    def __init__(self) -> None:
        self.notes: list[str] = []

    @command
    def note(self, text: str) -> list[str]:
        self.notes.append(text)
        return self.notes

    @command
    def fail(self, staged: bool) -> None:
        if staged:
            self.persist(Counted(1))
        raise TypeError("boom")

    @command
    async def fail_later(self, staged: bool) -> None:
        if staged:
            self.persist(Counted(1))
        await asyncio.sleep(0)
        raise TypeError("boom")

    @applies(Counted)
    def on_counted(self, happened: Counted) -> None:
        self.count += happened.by


@pytest.mark.parametrize("name", ["fail", "fail_later"])
async def test_a_caller_whose_commands_fail_slows_no_other_caller(name: str) -> None:
    async with MemoryCluster([Plain]) as cluster:
        with cluster.in_use():
            ref = Plain.ref("1")
            for number in range(6):
                with pytest.raises(EntityFailed):
                    await getattr(ref, name)(False)
                assert len(await ref.note("here")) == number + 1, "nothing was staged: the object goes on"
            for _ in range(6):
                with pytest.raises(EntityFailed):
                    await getattr(ref, name)(True)
                assert await ref.note("here") == ["here"], "rebuilt at once, before the next command"


class Restless(Entity):
    """Fails by itself as soon as it is there."""

    born: ClassVar[int] = 0
    settings = ShardingSettings(supervision=PATIENT)

    def __init__(self) -> None:
        Restless.born += 1
        self.context.start_timer("start", 0, Restless.begin)

    @command
    def begin(self) -> None:
        raise LookupError("not yet")

    @query
    def births(self) -> int:
        return Restless.born


async def test_one_that_fails_by_itself_waits_longer_each_time_but_lets_no_caller_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Restless, "born", 0)
    async with MemoryCluster([Restless]) as cluster:
        with cluster.in_use():
            assert await Restless.ref("1").births() == 1
            (node,) = cluster.nodes.values()
            (host,) = node.hosts.values()
            await until(lambda: host.execution.counters["handler_failed"] == 2)
            assert Restless.born == 2, "the first failure is tried again at once, the second in an hour"
            assert await Restless.ref("1").births() == 3


class Weary(Entity):
    """Fails by itself as soon as it is there, and stops in one way or the other when it is told
    to.
    """

    born: ClassVar[int] = 0
    settings = ShardingSettings(supervision=PATIENT)

    def __init__(self) -> None:
        Weary.born += 1
        self.context.start_timer("start", 0, Weary.begin)

    @command
    def begin(self) -> None:
        raise LookupError("not yet")

    @command
    def rest(self) -> int:
        self.context.passivate()
        return Weary.born

    @command
    def end(self) -> int:
        self.context.stop()
        return Weary.born

    @query
    def births(self) -> int:
        return Weary.born


@pytest.mark.parametrize("how", ["rest", "end"])
async def test_b2_18_one_that_stops_during_its_back_off_is_not_stuck(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Weary, "born", 0)
    async with MemoryCluster([Weary]) as cluster:
        with cluster.in_use():
            ref = Weary.ref("1")
            await ref.births()
            (node,) = cluster.nodes.values()
            (host,) = node.hosts.values()
            await until(lambda: host.execution.counters["handler_failed"] == 2)
            assert host.entity_life.delayed, "it is kept away for an hour"
            before = await getattr(ref, how)()
            await until(lambda: not cluster.is_in_memory(Weary, "1"))
            assert not host.entity_life.delayed
            assert await ref.births() == before + 1, "its next message starts a new one at once"


async def test_a_success_of_its_own_work_forgives_what_failed_before() -> None:
    failures = Failures(60.0)
    assert [failures.count("a", 1.0), failures.count("a", 2.0)] == [1, 2]
    failures.forgive("a")
    assert failures.count("a", 3.0) == 1


async def test_what_is_counted_is_bounded() -> None:
    failures = Failures(60.0)
    for number in range(20_000):
        failures.count(str(number), 1.0)
    assert len(failures) <= 10_000


async def test_delays_double_up_to_their_limit_and_are_forgiven() -> None:
    rules = Supervision(backoff_seconds=1.0, max_backoff_seconds=5.0)
    assert [rules.delay(number) for number in (1, 2, 3, 4, 5, 99)] == [0.0, 1.0, 2.0, 4.0, 5.0, 5.0]
    failures = Failures(60.0)
    assert [failures.count("a", at) for at in (0.0, 10.0, 69.0, 130.0)] == [1, 2, 3, 1]
    assert failures.count("b", 10.0) == 1


async def test_wrong_rules_are_refused() -> None:
    with pytest.raises(ValueError, match="none of restart, resume, stop, escalate"):
        Supervision({KeyError: "ignore"})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="rules are by exception class"):
        Supervision({"KeyError": "stop"})  # type: ignore[dict-item]
    for name in ("backoff_seconds", "max_backoff_seconds", "forgive_after_seconds"):
        wrong: Any
        for wrong in (-1.0, float("nan"), 10**400, None, timedelta(seconds=1)):
            with pytest.raises(ValueError, match=f"{name} must be a number from 0 to 1000000000"):
                Supervision(**{name: wrong})
    with pytest.raises(Exception, match="supervision must be a Supervision"):

        class Wrong(Entity):
            settings = ShardingSettings(supervision="restart")  # type: ignore[arg-type]
