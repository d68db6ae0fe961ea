"""Time in the cluster of a test: days pass by jumps, and all that is due happens in order."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from sharding_app import (
    Entity,
    EventSourced,
    ShardingSettings,
    Singleton,
    applies,
    command,
    event,
    every,
    query,
)
from sharding_app.entities.registry import registry
from sharding_app.errors import InvalidCall
from sharding_app.testing import MemoryCluster
from sharding_app.testing.clock import Clock
from sharding_app.testing.cluster import IN_FULL_SECONDS
from sharding_app.testing.thread import ClusterThread
from tests.support.slack import SLACK

WEEK = timedelta(days=7)
MOMENT_SECONDS = 2.0 * SLACK
"So much real time may pass between two steps of a test: it is the cluster's time too."


@event
class Opened: ...


@event
class Closed: ...


class Sale(EventSourced, name="time.Sale"):
    closed: int = 0

    @command
    def open(self, seconds: float) -> None:
        self.persist(Opened())
        self.schedule(self.ref.close, key="closing", after=seconds)

    @command
    def close(self) -> None:
        self.persist(Closed())

    @command
    def close_daily(self) -> None:
        self.schedule(self.ref.close, key="closing", every=timedelta(days=1))

    @command
    async def close_after_a_sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self.persist(Closed())

    @query
    def times(self) -> int:
        return self.closed

    @query
    def date(self) -> datetime:
        return self.context.now()

    @applies(Opened)
    def on_opened(self, happened: Opened) -> None: ...

    @applies(Closed)
    def on_closed(self, happened: Closed) -> None:
        self.closed += 1


class Chain(Entity, name="time.Chain"):
    """Each of its timers, in memory or stored, starts the next one."""

    settings = ShardingSettings(passivate_after_seconds=0)

    def __init__(self) -> None:
        self.steps: list[str] = []

    @command
    def begin(self) -> None:
        self.steps.append("begun")
        self.context.start_timer("plain", 3600, Chain.plain)

    @command
    def plain(self) -> None:
        self.steps.append("plain")
        self.schedule(self.ref.stored, key="stored", after=86_400)

    @command
    def stored(self) -> None:
        self.steps.append("stored")
        self.context.start_timer("last", 7200, Chain.last)

    @command
    def last(self) -> None:
        self.steps.append("last")

    @query
    def seen(self) -> list[str]:
        return self.steps


class Lazy(EventSourced, name="time.Lazy"):
    settings = ShardingSettings(passivate_after_seconds=7200)

    @command
    def touch(self) -> None: ...


class Digest(Singleton, EventSourced, name="time.Digest"):
    sent: int = 0

    @every(day_at="07:00", tz="Europe/Berlin")
    @command
    def send_it(self) -> None:
        self.persist(Closed())

    @query
    def times(self) -> int:
        return self.sent

    @applies(Closed)
    def on_closed(self, happened: Closed) -> None:
        self.sent += 1


@pytest.fixture(autouse=True)
def _no_other_types(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the types of other test modules out: a singleton that does something every five minutes
    makes a week long.
    """
    ours = {name: each for name, each in registry.all().items() if "time." in name}
    monkeypatch.setattr(registry, "all", lambda: ours)


@pytest.mark.parametrize("seconds", [59.0, 61.0, 3600.0, WEEK.total_seconds()])
def test_a_stored_timer_fires_at_its_time(
    sharding_cluster: ClusterThread, sharding_clock: Clock, seconds: float
) -> None:
    Sale.ref("a").sync.open(seconds)
    sharding_clock.advance(seconds - MOMENT_SECONDS)
    assert Sale.ref("a").sync.times() == 0
    sharding_clock.advance(MOMENT_SECONDS + 0.5)
    assert Sale.ref("a").sync.times() == 1


def test_events_are_dated_by_the_clock_of_the_test(
    sharding_cluster: ClusterThread, sharding_clock: Clock
) -> None:
    began = sharding_clock.date()
    Sale.ref("a").sync.open(WEEK.total_seconds())
    sharding_clock.advance(2 * WEEK)
    assert sharding_clock.date() - began >= 2 * WEEK
    rows = sharding_cluster.cluster.server.journal.events.values()
    opened, closed = (each.at for each in next(iter(rows)).values())
    assert closed - opened == pytest.approx(WEEK.total_seconds(), abs=MOMENT_SECONDS)


def test_a_week_costs_the_cluster_seconds_of_its_own_time(
    sharding_cluster: ClusterThread, sharding_clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("second", "third"):
        sharding_cluster.add_node(name)
    Sale.ref("a").sync.open(WEEK.total_seconds() / 2)
    home, loop = sharding_cluster.home_of(Sale, "a"), sharding_cluster.cluster.loop
    nodes = dict(sharding_cluster.cluster.nodes)
    resumes = [node.hosts["time.Sale"].resumes for node in nodes.values()]
    before = loop.time()
    caplog.clear()
    sharding_clock.advance(WEEK)
    assert loop.time() - before < 10 * IN_FULL_SECONDS
    assert Sale.ref("a").sync.times() == 1
    assert sharding_cluster.cluster.nodes == nodes
    assert [node.hosts["time.Sale"].resumes for node in nodes.values()] == resumes
    assert sharding_cluster.home_of(Sale, "a") == home
    assert not [each for each in caplog.records if getattr(each, "action", "") == "node_suspended"]


def test_timers_that_follow_from_each_other_all_fire(
    sharding_cluster: ClusterThread, sharding_clock: Clock
) -> None:
    Chain.ref("a").sync.begin()
    sharding_clock.advance(3700)
    assert Chain.ref("a").sync.seen() == ["begun", "plain"]
    sharding_clock.advance(86_400 + 7200)
    assert Chain.ref("a").sync.seen() == ["begun", "plain", "stored", "last"]


def test_what_repeats_fires_each_time(sharding_cluster: ClusterThread, sharding_clock: Clock) -> None:
    Sale.ref("a").sync.close_daily()
    sharding_clock.advance(timedelta(days=30, minutes=1))
    assert Sale.ref("a").sync.times() == 30
    assert Digest.the().sync.times() == 30


def test_handlers_are_told_the_date_of_the_test(
    sharding_cluster: ClusterThread, sharding_clock: Clock
) -> None:
    began = Sale.ref("a").sync.date()
    assert abs(began - datetime.now(UTC)) < timedelta(minutes=1)
    sharding_clock.advance(WEEK)
    assert WEEK <= Sale.ref("a").sync.date() - began <= WEEK + timedelta(minutes=1)


def test_the_date_is_none_before_a_time_that_the_server_has_reached(
    sharding_cluster: ClusterThread, sharding_clock: Clock
) -> None:
    Sale.ref("a").sync.open(5)
    due = sharding_clock.date() + timedelta(seconds=4)
    for node in sharding_cluster.cluster.nodes.values():
        node.hosts["time.Sale"]._date = lambda: datetime(
            2000, 1, 1, tzinfo=UTC
        )  # this machine's clock is wrong
    sharding_clock.advance(6)
    assert Sale.ref("a").sync.times() == 1
    assert Sale.ref("a").sync.date() >= due


def test_a_handler_that_sleeps_wakes_in_time(sharding_cluster: ClusterThread, sharding_clock: Clock) -> None:
    Sale.ref("a").close_after_a_sleep.tell(5000.0)
    sharding_clock.advance(4990)
    assert sharding_cluster.events(Sale, "a") == []
    sharding_clock.advance(20)
    assert sharding_cluster.events(Sale, "a") == [Closed()]


def test_entities_leave_memory_when_they_would(
    sharding_cluster: ClusterThread, sharding_clock: Clock
) -> None:
    Lazy.ref("a").sync.touch()
    sharding_clock.advance(7190)
    assert sharding_cluster.is_in_memory(Lazy, "a")
    sharding_clock.advance(20)
    assert not sharding_cluster.is_in_memory(Lazy, "a")


def test_a_node_that_was_cut_off_is_given_up(sharding_cluster: ClusterThread, sharding_clock: Clock) -> None:
    Sale.ref("a").sync.open(1800)
    home = sharding_cluster.home_of(Sale, "a")
    sharding_cluster.add_node("other")
    home = sharding_cluster.home_of(Sale, "a")
    sharding_cluster.cut_off(home)
    sharding_clock.advance(120)
    assert Sale.ref("a").sync.times() == 0
    sharding_cluster.kill_node(home)
    sharding_clock.advance(1800)
    assert Sale.ref("a").sync.times() == 1


def test_dates_go_on_after_a_jump(sharding_cluster: ClusterThread, sharding_clock: Clock) -> None:
    sharding_clock.advance(WEEK)
    sharding_cluster.stop_node(sharding_cluster.add_node())
    Sale.ref("a").sync.open(100)
    sharding_clock.advance(101)
    assert Sale.ref("a").sync.times() == 1
    assert isinstance(sharding_clock.date(), datetime)
    with pytest.raises(ValueError, match="backwards"):
        sharding_clock.advance(-1)


@pytest.mark.asyncio
async def test_a_plain_loop_has_no_time_to_pass() -> None:
    async with MemoryCluster([Sale]) as cluster:
        with pytest.raises(InvalidCall, match="TravelLoop"):
            await cluster.advance(1)
