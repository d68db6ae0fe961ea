"""Messages and timers of a command: what is staged, and what is refused at the call."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from sharding_app import (
    Daily,
    Entity,
    EntityFailed,
    EventSourced,
    Failure,
    InvalidCall,
    Ref,
    Rejected,
    WrongContext,
    applies,
    command,
    event,
    query,
)
from sharding_app.entities.durable_calls import Sent
from sharding_app.entities.gateway import use_gateway
from sharding_app.entities.staging import STAGED_LIMIT, Staging
from sharding_app.testing import given
from sharding_app.testing.local import LocalGateway

NOW = datetime(2026, 11, 23, 9, 0, tzinfo=UTC)


@event
class Bid:
    by: str
    amount: int


@event
class Closed: ...


class Bidder(Entity, name="durable.Bidder"):
    def __init__(self) -> None:
        self.told: list[str] = []

    @command
    def outbid(self, auction: str, amount: int = 0) -> str:
        if amount < 0:
            raise Rejected("no", code="negative")
        self.told.append(f"{auction}: {amount}")
        return "a pity"

    @query
    def all_told(self) -> list[str]:
        return self.told


class Auction(EventSourced, name="durable.Auction"):
    bids: list[str]

    def __init__(self) -> None:
        self.bids = []
        self.answers: list[str] = []

    @command
    def bid(self, by: str, amount: int) -> None:
        if self.bids:
            self.send(Bidder.ref(self.bids[-1]).outbid, self.entity_id, amount=amount).reply_to(
                self.answered
            ).on_failure(self.ref.failed)
        self.schedule(self.ref.close, key="closing", after=timedelta(hours=1))
        self.persist(Bid(by, amount))

    @command
    def answered(self, answer: str) -> None:
        self.answers.append(answer)

    @command
    def failed(self, failure: Failure) -> None:
        self.answers.append(f"{failure.entity_id} {failure.code} {failure.arguments} {failure.is_rejected}")

    @command
    def close(self) -> None:
        self.persist(Closed())
        self.cancel("reminding")

    @command
    def keep_open(self) -> None:
        self.cancel("closing")
        self.schedule(self.ref.remind.bind("soon"), key="reminding", every=timedelta(minutes=10))

    @command
    def remind(self, how: str) -> str:
        return how

    @query
    def answers_so_far(self) -> list[str]:
        return self.answers

    @applies(Bid)
    def on_bid(self, happened: Bid) -> None:
        self.bids.append(happened.by)

    @applies(Closed)
    def on_closed(self, happened: Closed) -> None: ...


def auction(entity_id: str = "1") -> tuple[Auction, Staging]:
    """Return one in the middle of a command."""

    async def commit(staging: Staging) -> None: ...

    made: Auction = Auction._sharding_type.new(entity_id)  # type: ignore[union-attr]
    made._sharding_staging = staging = Staging(commit)
    return made, staging


def test_a_test_sees_messages_and_timers_of_a_call() -> None:
    scenario = given(Bid("ann", 1), now=NOW).when(Auction.bid, "bob", 5)
    scenario.then(
        events=[Bid("bob", 5)],
        sent=[Bidder.ref("ann").outbid.bind("1", amount=5)],
        timers={"closing": Auction.ref("1").close.bind()},
    )
    assert scenario.messages[0].reply_to == "answered"
    assert scenario.messages[0].on_failure == "failed"
    assert scenario.timers["closing"].due == NOW + timedelta(hours=1)
    scenario.advance(3599).then(sent=[], timers={"closing": Auction.ref("1").close.bind()})
    scenario.advance(1).then(events=[Closed()], timers={}, cancelled=["reminding"])


def test_a_timer_is_replaced_cancelled_and_repeats() -> None:
    scenario = given(now=NOW).when(Auction.bid, "ann", 5).when(Auction.keep_open)
    scenario.then(cancelled=["closing"], timers={"reminding": Auction.ref("1").remind.bind("soon")}, sent=[])
    scenario.advance(timedelta(minutes=25))
    assert scenario.timers["reminding"].due == NOW + timedelta(minutes=30)


@pytest.mark.asyncio
async def test_answers_and_failures_come_back_as_commands() -> None:
    with use_gateway(LocalGateway()) as carrier:
        await Auction.ref("1").bid("ann", 1)
        await Auction.ref("1").bid("bob", 2)
        await Auction.ref("1").bid("eve", -3)
        assert await Bidder.ref("ann").all_told() == ["1: 2"]
        answers = await Auction.ref("1").answers_so_far()
        assert answers == ["a pity", "bob negative {'auction': '1', 'amount': -3} True"]
        await carrier.advance(3600)
        assert carrier.host("durable.Auction", "1").events == [Closed()]


def test_a_key_has_one_timer_and_the_last_word_counts() -> None:
    made, staging = auction()
    made.schedule(made.ref.close, key="a", after=5)
    made.schedule(Auction.close, key="a", at=NOW)
    assert [(each.key, each.at) for each in staging.messages] == [("a", NOW)]
    made.cancel("a")
    made.cancel("a")
    assert (staging.messages, staging.cancelled) == ([], ["a"])
    made.schedule(made.close, key="a", every=Daily("07:00", tz="Europe/Berlin"), missed="skip")
    assert staging.cancelled == []
    (timer,) = staging.messages
    assert timer.every == '{"day_at":"07:00","tz":"Europe/Berlin","missed":"skip"}'
    assert (timer.target_type, timer.target, timer.command) == ("durable.Auction", "1", "close")
    staging.clear()
    assert [staging.messages, staging.cancelled, staging.after_commit] == [[], [], []]


def test_a_message_knows_its_handlers_only_until_it_is_committed() -> None:
    made, staging = auction()
    sent = made.send(Bidder.ref("x").outbid, "1")
    assert isinstance(sent, Sent)
    staging.clear()
    with pytest.raises(WrongContext, match="is committed already"):
        sent.reply_to(made.answered)


def test_the_entity_s_own_ref() -> None:
    made, _ = auction("7")
    own: Ref[Auction] = made.ref
    assert own == Auction.ref("7")
    other: object = made.ref("8")  # type: ignore[call-arg]
    assert other == Auction.ref("8")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda a: a.send(Bidder.ref("x").all_told), "all_told is a query"),
        (lambda a: a.send(Bidder.outbid, "x"), r"needs an id: self.send\(Bidder.ref\(id\).outbid"),
        (lambda a: a.send(a.close), "name yourself as the target: self.send"),
        (lambda a: a.send(a.ref.remind.bind("x")), "give the arguments to send"),
        (lambda a: a.send(print), "send.. takes a command of a ref"),
        (lambda a: a.send(Bidder.ref("x").outbid, 5), "argument 'auction'"),
        (lambda a: a.send(Bidder.ref("x").outbid), "missing a required argument"),
        (lambda a: a.send(Bidder.ref("x", command_id="c").outbid, "1"), "has a command_id"),
        (lambda a: a.send(a.ref.close).reply_to(Bidder.outbid), "reply_to names a command of Auction itself"),
        (lambda a: a.send(a.ref.close).on_failure(a.answers_so_far), "answers_so_far is a query"),
        (lambda a: a.schedule(a.ref.close, key="a"), "say when"),
        (lambda a: a.schedule(a.ref.close, key="a", at=NOW, after=1), "at= or after=, not both"),
        (lambda a: a.schedule(a.ref.close, key="a", at=NOW, every=timedelta(1)), "every= alone repeats"),
        (lambda a: a.schedule(a.ref.close, key="a", at=NOW.replace(tzinfo=None)), "has no time zone"),
        (lambda a: a.schedule(a.ref.close, key="a", at=datetime.max.replace(tzinfo=UTC)), "to 9900-01-01"),
        (lambda a: a.schedule(a.ref.close, key="a", at=datetime.min.replace(tzinfo=UTC)), "from 1900-01-01"),
        (lambda a: a.schedule(a.ref.close, key="a", at=5), "must be a datetime"),
        (lambda a: a.schedule(a.ref.close, key="a", after=-1), "from 0 seconds"),
        (lambda a: a.schedule(a.ref.close, key="a", after=float("nan")), "from 0 seconds"),
        (lambda a: a.schedule(a.ref.close, key="a", after="soon"), "a number of seconds or a timedelta"),
        (lambda a: a.schedule(a.ref.close, key="a", every=timedelta(0)), "too short"),
        (lambda a: a.schedule(a.ref.close, key="a", every=60), "must be a timedelta or Daily"),
        (lambda a: a.schedule(a.ref.close, key="a", after=1, missed="all"), "use it with every="),
        (lambda a: a.schedule(a.ref.close, key="a", every=timedelta(1), missed="no"), "'once', 'all' or"),
        (lambda a: a.schedule(a.ref.close, key=5, after=1), "the key of a timer must be a str"),
        (lambda a: a.schedule(a.ref.close, key="", after=1), "must not be empty"),
        (lambda a: a.schedule(a.ref.close, key="?x", after=1), "is reserved"),
        (lambda a: a.schedule(a.ref.remind, key="a", after=1), r"use call=self.ref.remind.bind\(...\)"),
        (lambda a: a.schedule(Bidder.ref("x").outbid, key="a", after=1), "call= names a command of Auction"),
        (lambda a: a.schedule(Auction.ref("2").close, key="a", after=1), "call= names a command of Auction"),
        (lambda a: a.schedule(a.answers_so_far, key="a", after=1), "is a query"),
        (lambda a: a.after_commit(5), "takes a function without arguments"),
        (lambda a: a.after_commit(a.ref.close), "would be lost with its node: use self.send"),
        (lambda a: Daily("25:00", tz="UTC"), "is written as '07:00'"),
        (lambda a: Daily("07:00+02:00", tz="UTC"), "has a time zone of its own"),
        (lambda a: Daily("07:00", tz="Mars"), "no time zone 'Mars'"),
    ],
)
def test_each_misuse_has_its_own_error(call: object, said: str) -> None:
    made, staging = auction()
    with pytest.raises(InvalidCall, match=said) as raised:
        call(made)  # type: ignore[operator]
    assert raised.value.stored == "nothing"
    assert [each for each in staging.messages if each.command != "close"] == []


def test_one_commit_carries_so_many_at_most() -> None:
    made, _ = auction()
    for _ in range(STAGED_LIMIT):
        made.send(Bidder.ref("x").outbid, "1")
    with pytest.raises(InvalidCall, match="more than 1,000 messages"):
        made.cancel("x")


def test_outside_of_a_command_nothing_is_staged() -> None:
    made, _ = auction()
    made._sharding_staging = None
    for call in (
        lambda: made.send(Bidder.ref("x").outbid, "1"),
        lambda: made.schedule(made.ref.close, key="a", after=1),
        lambda: made.cancel("a"),
        lambda: made.after_commit(lambda: None),
    ):
        with pytest.raises(WrongContext, match="can only be called while a command handler runs"):
            call()


class Order(EventSourced, name="durable.Order"):
    """Has a command whose name is also ours."""

    @command
    def cancel(self) -> str:  # type: ignore[override]
        super().cancel("paying")
        return "cancelled"

    @command
    def cancel_wrongly(self) -> None:
        self.cancel("paying")  # type: ignore[call-arg]


def test_a_command_may_have_the_name_of_a_method_of_ours() -> None:
    given().when(Order.cancel).then(reply="cancelled", cancelled=["paying"])
    given().when(Order.cancel_wrongly).then_raises(EntityFailed, "InvalidCall")
