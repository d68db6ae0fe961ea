"""`self.context` of an entity alone: its date, its timers in memory, its end."""

from datetime import UTC, datetime, timedelta

import pytest

from sharding_app import (
    EntityFailed,
    EventSourced,
    InvalidCall,
    Rejected,
    applies,
    command,
    event,
    message,
    query,
)
from sharding_app.testing import given

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@event
class Bid:
    at: datetime


@message
class BellRings: ...


class Lot(EventSourced, name="alone.Lot"):
    bids: list[datetime]

    def __init__(self) -> None:
        self.bids = []
        self.rung: list[datetime] = []

    @command
    def bid(self) -> datetime:
        now = self.context.now()
        self.persist(Bid(now))
        self.context.start_timer("ring", 60, Lot.ring)
        return now

    @command
    def bid_durably(self) -> None:
        self.schedule(self.ref.bid, key="bid", after=30)
        self.context.start_timer("ring", 60, BellRings())

    @command
    def ring(self) -> None:
        self.rung.append(self.context.now())

    def receive(self, message: object) -> object:
        self.rung.append(self.context.now())
        return None

    @command
    def silence(self) -> bool:
        return self.context.cancel_timer("ring")

    @command
    def refuse(self) -> None:
        raise Rejected("no")

    @command
    def fail(self) -> None:
        raise RuntimeError("broken")

    @command
    def stop(self) -> None:
        self.context.stop()

    @command
    def leave(self) -> None:
        self.context.passivate()

    @command
    def wrong(self) -> None:
        self.context.start_timer("ring", 60, 5)

    @query
    def about(self) -> tuple[str, str, bool]:
        return self.context.type_name, self.context.ref.entity_id, self.context.sender is None

    @query
    def seen(self) -> list[datetime]:
        return self.rung

    @applies(Bid)
    def on_bid(self, happened: Bid) -> None:
        self.bids.append(happened.at)


def seen_after(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


def test_a_date_is_the_tests_and_moves_with_it() -> None:
    lot = given(now=NOON).when(Lot.bid).then(events=[Bid(NOON)], reply=NOON)
    lot.advance(90).when(Lot.bid).then(reply=seen_after(1.5))


def test_timers_in_memory_fire_in_their_time() -> None:
    given(now=NOON).when(Lot.bid).advance(59).when(Lot.seen).then(reply=[])
    given(now=NOON).when(Lot.bid).advance(3600).when(Lot.seen).then(reply=[seen_after(1)])
    lot = given(now=NOON).when(Lot.bid_durably).advance(3600)
    lot.then(state={"bids": ["2026-03-01T12:00:30Z"]}).when(Lot.seen).then(reply=[seen_after(1.5)])


def test_a_message_is_a_timers_too() -> None:
    class Bell(Lot, name="alone.Bell"):
        @command
        def start(self) -> None:
            self.context.start_timer("ring", 60, BellRings())

    given(now=NOON).when(Bell.start).advance(61).when(Bell.seen).then(reply=[seen_after(1)])


def test_a_timer_is_cancelled_or_ends_with_its_object() -> None:
    bid = given(now=NOON).when(Lot.bid)
    bid.when(Lot.silence).then(reply=True).when(Lot.silence).then(reply=False)
    bid.advance(100).when(Lot.seen).then(reply=[])
    refused = given(now=NOON).when(Lot.bid).when(Lot.refuse)
    refused.advance(100).when(Lot.seen).then(reply=[seen_after(1)])
    failed = given(now=NOON).when(Lot.bid).when(Lot.fail)
    failed.advance(100).when(Lot.seen).then(reply=[])


@pytest.mark.parametrize("name", ["stop", "leave"])
def test_an_entity_that_ends_begins_anew_with_the_next_call(name: str) -> None:
    lot = given(now=NOON).when(Lot.bid).when(getattr(Lot, name))
    assert lot.stopped
    lot.advance(100).when(Lot.seen).then(reply=[], state={"bids": ["2026-03-01T12:00:00Z"]})
    assert not lot.stopped


def test_its_type_and_address() -> None:
    given(entity_id="7").when(Lot.about).then(reply=("alone.Lot", "7", True))
    given().when(Lot.wrong).then_raises(Exception, "start_timer takes a command of alone.Lot")  # type: ignore[arg-type]
    with pytest.raises(InvalidCall):
        given().when(5)


class Alarm(Lot, name="alone.Alarm"):
    @command
    def plan(self) -> None:
        self.schedule(self.ref.refuse, key="refused", after=10)
        self.schedule(self.ref.fail, key="failed", after=20)
        self.schedule(self.ref.bid, key="bid", after=30)

    @command
    def plan_often(self) -> None:
        self.schedule(self.ref.refuse, key="refused", every=timedelta(minutes=1))


def test_time_and_other_timers_go_on_behind_one_that_fails() -> None:
    alarm = given(now=NOON).when(Alarm.plan).advance(3600)
    assert alarm.now == seen_after(60)
    alarm.then_raises(Rejected, state={"bids": ["2026-03-01T12:00:30Z"]})
    assert sorted(alarm.timers) == ["failed", "refused"]
    alarm.advance(60).then_raises(EntityFailed, "broken")
    alarm.when(Alarm.plan).advance(60).then_raises(Rejected, "no")


def test_a_refusal_ends_one_firing_of_a_timer_that_repeats() -> None:
    alarm = given(now=NOON).when(Alarm.plan_often).advance(90)
    alarm.then_raises(Rejected, "no")
    assert alarm.timers["refused"].due == seen_after(2)
    alarm.advance(3).then(events=[])
