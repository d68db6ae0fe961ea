"""What the judge makes of durable messages and timers: their commit, order, end, and time."""

from collections.abc import Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from sharding_app.entities.base import Entity
from sharding_app.testing.simulation.message_checker import (
    LONGEST_SECONDS,
    MessageChecker,
    Order,
    interval_of,
    seconds_of,
)
from sharding_app.testing.simulation.promises import Entry, PromiseBroken
from sharding_app.testing.simulation.senders import ACCOUNT, ECHO, SAFE, orders
from sharding_app.testing.simulation.topology import ACCOUNTS, cast_of

ANN, BOB, ECHOES = "sim.Account/ann", "sim.Account/bob", "sim.Echo/echo"


class Stage:
    """A journal by hand, and the judge of it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.broken: list[PromiseBroken] = []
        self.journal: dict[str, list[Entry]] = {}
        self.refused: dict[str, None] = {}
        self.lost: dict[str, None] = {}
        self.rows: dict[str, Any] = {}
        self.events: dict[tuple[int, str], dict[int, Any]] = {}
        self.server: Any = SimpleNamespace(
            messages=SimpleNamespace(rows=self.rows), journal=SimpleNamespace(events=self.events),
            date=lambda: datetime(2026, 1, 1, tzinfo=UTC),
        )  # fmt: skip
        self.journals: tuple[str, ...] = ()
        self.judge = MessageChecker(self.world())

    def world(self) -> Any:
        witness = SimpleNamespace(
            journal=self.journal, was_lost=lambda token: token in self.lost, name_of=lambda _: ACCOUNT.name
        )
        return SimpleNamespace(
            witness=witness, obstacles=SimpleNamespace(refused=self.refused), server=self.server, now=0.0,
            servers={"": self.server}, journals=self.journals, broke=self.broken.append, transition=lambda *_: None,
            lies_in=lambda *_: True, where=SimpleNamespace(lies_in=lambda *_: True),
        )  # fmt: skip

    def stage(self, name: str, event: str, *given: Order) -> None:
        for place, order in enumerate(given):
            self.judge.staged(entity(name), event, place, order)

    def commit(self, name: str, *tokens: str, at: float = 0.0, began: float | None = None) -> None:
        """Commit events, one after the other."""
        entries = self.journal.setdefault(name, [])
        for token in tokens:
            new = [Entry(len(entries) + 1, 1, token, at)]
            entries += new
            self.judge.committed(name, new, at if began is None else began)

    def park(self, token: str) -> None:
        row = SimpleNamespace(args=msgspec.msgpack.encode([token]), type_id=1, shard=0, epoch=None)
        self.rows[token] = SimpleNamespace(row=row, parked=True)

    def moved(self, name: str, *cents: int) -> None:
        payloads = [
            SimpleNamespace(row=SimpleNamespace(payload=msgspec.json.encode({"cents": each})))
            for each in cents
        ]
        self.events[1, name.partition("/")[2]] = dict(enumerate(payloads))


def entity(name: str) -> Entity:
    type_name, _, entity_id = name.partition("/")
    made = next(each for each in (ACCOUNT, SAFE, ECHO) if each.name == type_name)
    found: Entity = object.__new__(made.cls)
    found.entity_id = entity_id
    return found


def pay(token: str, target: str = BOB, what: str = "pay") -> Order:
    return Order(what, target, token)


@pytest.fixture
def at() -> Stage:
    return Stage()


def fails(name: str, promise: int = 15) -> Any:
    return pytest.raises(PromiseBroken, match=f"promise {promise}, {name}")


# -- Messages --------------------------------------------------------------------------------------


def test_a_message_that_takes_effect_after_its_event_is_fine(at: Stage) -> None:
    at.stage(ANN, "a", pay("m"))
    at.commit(ANN, "a")
    at.judge.handles(entity(BOB), "m")
    at.commit(BOB, "m")
    at.moved(ANN, -1)
    at.moved(BOB, 1)
    at.judge.look_back()
    assert not at.broken


def test_a_message_is_not_handled_before_its_event_is_committed(at: Stage) -> None:
    at.stage(ANN, "a", pay("m"))
    at.judge.handles(entity(BOB), "m")
    at.judge.handles(entity(BOB), "unknown")
    assert [each.name for each in at.broken] == ["messages_follow_their_commit"] * 2


def test_a_message_may_be_handled_whose_event_was_lost_with_the_tail(at: Stage) -> None:
    at.stage(ANN, "a", pay("m"))
    at.lost["a"] = None
    at.judge.handles(entity(BOB), "m")
    assert not at.broken


def test_a_message_takes_no_effect_without_its_event(at: Stage) -> None:
    at.stage(ANN, "a", pay("m"))
    with fails("messages_follow_their_commit"):
        at.commit(BOB, "m")


@pytest.mark.parametrize("tokens", [("m2", "m1"), ("m3", "m2"), ("m3", "m1")])
def test_messages_of_one_sender_take_effect_in_the_order_of_their_staging(
    at: Stage, tokens: Sequence[str]
) -> None:
    at.stage(ANN, "a", pay("m1"), pay("m2"))
    at.stage(ANN, "b", pay("m3"))
    at.commit(ANN, "a", "b")
    with fails("messages_keep_their_order"):
        at.commit(BOB, *tokens)


def test_messages_of_other_senders_and_to_other_targets_have_no_order(at: Stage) -> None:
    at.stage(ANN, "a", pay("m1"), pay("m2", ANN))
    at.stage(BOB, "b", pay("m3"))
    at.commit(ANN, "a")
    at.commit(BOB, "b", "m3", "m1")
    at.commit(ANN, "m2")


def test_an_entity_in_memory_hears_first_what_was_sent_first_and_may_hear_it_again(at: Stage) -> None:
    at.stage(ANN, "a", pay("m1", ECHOES), pay("m2", ECHOES), pay("m3", ECHOES))
    at.commit(ANN, "a")
    for token in ("m1", "m2", "m1"):
        at.judge.is_heard(entity(ECHOES), token)
    assert not at.broken
    at.stage(ANN, "b", pay("m0", ECHOES))
    at.judge.staged(entity(ANN), "c", 0, pay("m4", ECHOES))
    at.commit(ANN, "b", "c")
    at.judge.is_heard(entity(ECHOES), "m4")
    at.judge.is_heard(entity(ECHOES), "m0")
    assert [each.name for each in at.broken] == ["messages_keep_their_order"]


@pytest.mark.parametrize(
    ("what", "effect"), [("pay", ("m!",)), ("bounce", ("m",)), ("burst", ("m",)), ("burst", ("m!", "m"))]
)
def test_a_message_is_returned_for_a_reason_only(at: Stage, what: str, effect: Sequence[str]) -> None:
    at.stage(ANN, "a", pay("m", what=what))
    at.commit(ANN, "a")
    with fails("messages_fail_for_a_reason"):
        for token in effect:
            at.commit(ANN if token.endswith("!") else BOB, token)


def test_a_message_whose_row_was_refused_may_be_returned(at: Stage) -> None:
    at.stage(ANN, "a", pay("m"))
    at.refused["m"] = None
    at.commit(ANN, "a", "m!")
    at.judge.look_back()


@pytest.mark.parametrize(
    ("what", "effects"), [("pay", ()), ("bounce", ()), ("ask", ("m",)), ("steps", ("m", "m~"))]
)
def test_at_the_end_a_message_without_its_whole_effect_is_missed(
    at: Stage, what: str, effects: Sequence[str]
) -> None:
    at.stage(ANN, "a", pay("m", what=what))
    at.commit(ANN, "a")
    for token in effects:
        at.commit(ANN if token.endswith("~") else BOB, token)
    with fails("messages_arrive"):
        at.judge.look_back()


def test_no_reply_is_missed_to_a_message_that_was_erased_between_its_two_commits(at: Stage) -> None:
    at.stage(ANN, "a", pay("m", what="steps"))
    at.commit(ANN, "a")
    at.commit(BOB, "m")
    at.park("m")
    at.judge.look_back()
    del at.rows["m"]
    at.judge.is_erased(1, "ann", [])
    at.journal[ANN].clear()
    at.judge.look_back()
    at.commit(BOB, "m+")
    with fails("messages_arrive"):
        at.judge.look_back()


def test_a_message_from_outside_ends_with_its_row_when_its_target_is_erased(at: Stage) -> None:
    at.judge.sent_from_outside("p-c0", "n", BOB, is_timer=False)
    at.judge.is_stored("n", since=0.0)
    at.park("n")
    at.judge.is_erased(1, "bob", [at.rows.pop("n")])
    at.judge.look_back()


def test_a_message_from_outside_is_missed_if_no_erasure_of_its_target_took_its_row(at: Stage) -> None:
    at.judge.sent_from_outside("p-c0", "n", BOB, is_timer=False)
    at.judge.is_stored("n", since=0.0)
    at.park("n")
    row = at.rows.pop("n")
    at.judge.is_erased(1, "bob", [])
    with fails("messages_arrive"):
        at.judge.look_back()
    at.judge.is_erased(1, "ann", [row])
    with fails("messages_arrive"):
        at.judge.look_back()


def test_a_message_of_a_command_that_stored_nothing_is_not_missed(at: Stage) -> None:
    at.stage(ANN, "a", pay("m"))
    at.judge.sent_from_outside("p-c0", "n", BOB, is_timer=False)
    at.judge.look_back()


def test_a_message_from_outside_is_missed_if_its_client_was_told_that_it_is_stored(at: Stage) -> None:
    at.judge.sent_from_outside("p-c0", "n", BOB, is_timer=False)
    at.judge.is_stored("n", since=0.0)
    with fails("messages_arrive"):
        at.judge.look_back()
    at.judge.tail_is_lost(at.server)
    at.judge.look_back()


@pytest.mark.parametrize(("since", "is_missed"), [(-1.0, False), (1.0, True)])
def test_an_answer_says_nothing_of_a_tail_that_was_lost_while_it_was_on_its_way(
    at: Stage, since: float, is_missed: bool
) -> None:
    at.judge.sent_from_outside("p-c0", "n", BOB, is_timer=False)
    at.judge.tail_is_lost(at.server)
    at.judge.is_stored("n", since)
    if is_missed:
        with fails("messages_arrive"):
            at.judge.look_back()
    else:
        at.judge.look_back()


@pytest.mark.parametrize("is_between", [False, True])
@pytest.mark.parametrize("comes_back", [False, True])
def test_a_reply_of_an_entity_in_memory_may_go_with_a_tail_between_two_journals(
    at: Stage, is_between: bool, comes_back: bool
) -> None:
    """The other journal may have ended its message. In one journal that comes back too."""
    world: Any = at.judge._world
    world.journals = ("second",) if is_between else ()
    world.server_of_entity = lambda type_name, _: type_name
    at.stage(ANN, "a", pay("m", ECHOES, "ask"))
    at.commit(ANN, "a")
    at.judge.is_heard(entity(ECHOES), "m")
    with fails("messages_arrive"):
        at.judge.look_back()
    row = SimpleNamespace(
        args=msgspec.msgpack.encode(["m"]), command="thanked", type_id=1, shard=0, epoch=None
    )
    at.rows["r"] = SimpleNamespace(row=row, parked=False)
    at.judge.is_losing_its_tail(at.server)
    kept = at.rows.pop("r") if not comes_back else None
    at.judge.tail_is_lost(at.server)
    at.rows.pop("r", None)
    if is_between and kept is not None:
        at.judge.look_back()
    else:
        with fails("messages_arrive"):
            at.judge.look_back()


@pytest.mark.parametrize(("first_ends", "is_wrong"), [("before", True), ("after", False)])
def test_messages_that_a_client_stores_at_the_same_time_have_no_order(
    at: Stage, first_ends: str, is_wrong: bool
) -> None:
    at.judge.sent_from_outside("p-c0", "m", BOB, is_timer=False)
    if first_ends == "before":
        at.judge.is_stored("m", since=0.0)
    at.judge.sent_from_outside("p-c0", "n", BOB, is_timer=False)
    at.judge.is_stored("n", since=0.0)
    at.judge.is_stored("m", since=0.0)
    at.commit(BOB, "n")
    if is_wrong:
        with fails("messages_keep_their_order"):
            at.commit(BOB, "m")
    else:
        at.commit(BOB, "m")


def test_an_operator_has_only_what_nothing_else_is_done_about(at: Stage) -> None:
    at.stage(ANN, "a", pay("m", "sim.Safe/safe", "lose"))
    at.commit(ANN, "a")
    with fails("messages_arrive"):
        at.judge.look_back()
    at.park("m")
    at.judge.look_back()
    at.stage(ANN, "b", pay("n"))
    at.commit(ANN, "b")
    at.park("n")
    with fails("messages_arrive"):
        at.judge.look_back()


def test_a_message_that_an_operator_has_discarded_takes_no_effect(at: Stage) -> None:
    """No seed shows it: in the simulation, operators discard only what its target rejects."""
    at.stage(ANN, "a", pay("m"))
    at.commit(ANN, "a")
    at.judge.is_discarded("m")
    at.judge.look_back()
    with fails("discarded_is_not_delivered"):
        at.commit(BOB, "m")


def test_no_cent_is_made_or_lost(at: Stage) -> None:
    at.moved(ANN, -1, 1)
    at.judge.look_back()
    at.moved(ANN, -1)
    with fails("money_is_kept"):
        at.judge.look_back()


# -- Timers ----------------------------------------------------------------------------------------

RING = Order("ring", "morning", "t")
BEAT = Order("beat", "beat", "t")


def test_a_timer_fires_once_its_time_has_come(at: Stage) -> None:
    at.stage(ANN, "a", RING)
    at.commit(ANN, "a", at=2.0, began=1.0)
    at.commit(ANN, "t", at=1.0 + seconds_of("t"))
    at.judge.look_back()


def test_a_timer_that_fires_before_its_time_is_found(at: Stage) -> None:
    at.stage(ANN, "a", RING)
    at.commit(ANN, "a", at=2.0)
    with fails("timers_fire_in_time", 16):
        at.commit(ANN, "t", at=2.0 + seconds_of("t") - 0.001)


@pytest.mark.parametrize("then", [Order("cancel", "morning", ""), Order("ring", "morning", "u")])
def test_a_timer_that_was_cancelled_or_replaced_does_not_fire(at: Stage, then: Order) -> None:
    at.stage(ANN, "a", RING)
    at.stage(ANN, "b", then)
    at.commit(ANN, "a", "b")
    with fails("ended_timers_do_not_fire", 16):
        at.commit(ANN, "t", at=LONGEST_SECONDS)


def test_a_timer_that_fires_twice_is_found(at: Stage) -> None:
    at.stage(ANN, "a", RING)
    at.commit(ANN, "a")
    with fails("ended_timers_do_not_fire", 16):
        at.commit(ANN, "t", "t", at=LONGEST_SECONDS)


def test_a_repeating_timer_fires_once_for_each_of_its_times(at: Stage) -> None:
    every = interval_of("t")
    at.stage(ANN, "a", BEAT)
    at.commit(ANN, "a")
    at.commit(ANN, "t#1", at=every)
    at.commit(ANN, "t#2", at=2 * every)
    with fails("timers_fire_in_time", 16):
        at.commit(ANN, "t#3", at=2 * every + 0.5)


STEPS = Order("beat_steps", "beat", "t")


def test_a_firing_with_two_commits_has_both_or_waits_for_an_operator(at: Stage) -> None:
    every = interval_of("t")
    at.stage(ANN, "a", STEPS)
    at.stage(ANN, "t#2", Order("cancel", "beat", ""))
    at.commit(ANN, "a")
    at.commit(ANN, "t#1", "t#1+", at=every)
    at.commit(ANN, "t#2", at=2 * every)
    with fails("timers_fire_whole", 16):
        at.judge.look_back()
    at.park("t")
    at.judge.look_back()
    at.rows.clear()
    at.commit(ANN, "t#2+", at=2 * every)
    at.judge.look_back()


@pytest.mark.parametrize("then", [Order("cancel", "beat", ""), Order("ring", "beat", "u")])
def test_a_later_command_may_end_the_rest_of_a_firing(at: Stage, then: Order) -> None:
    at.stage(ANN, "a", STEPS)
    at.stage(ANN, "b", then)
    at.commit(ANN, "a")
    at.commit(ANN, "t#1", at=interval_of("t"))
    at.commit(ANN, "b", at=3.0)
    if then.token:
        at.commit(ANN, "u", at=9.0)
    at.judge.look_back()


def test_a_firing_between_its_commits_is_waited_for(at: Stage) -> None:
    at.stage(ANN, "a", STEPS)
    at.commit(ANN, "a")
    at.park("t")
    assert not at.judge.waiting()
    at.commit(ANN, "t#1", at=interval_of("t"))
    assert at.judge.waiting()


def test_a_firing_whose_second_commit_failed_goes_on_no_more(at: Stage) -> None:
    at.stage(ANN, "a", STEPS)
    at.commit(ANN, "a")
    at.commit(ANN, "t#1", at=interval_of("t"))
    at.park("t")
    at.judge.look_back()


def test_a_timer_that_does_not_fire_is_missed_unless_its_row_was_refused(at: Stage) -> None:
    at.stage(ANN, "a", RING)
    at.commit(ANN, "a")
    with fails("timers_fire", 16):
        at.judge.look_back()
    at.refused["t"] = None
    at.judge.look_back()


# -- The cast --------------------------------------------------------------------------------------


def test_half_of_the_seeds_have_them_in_both_kinds_and_with_every_target() -> None:
    casts = [cast_of(seed) for seed in range(24)]
    sending = [each for each in casts if each.senders]
    assert len(sending) == 12
    assert sum(each.whole_protocol for each in sending) == 6
    assert {made.name for each in sending for made, _ in each.senders} == {
        "sim.Account", "sim.Courier", "sim.Safe", "sim.Echo",
    }  # fmt: skip
    assert all(sum(made is ACCOUNT for made, _ in each.senders) == ACCOUNTS for each in sending)


def test_orders_name_what_their_targets_can_do() -> None:
    from random import Random

    tokens = (f"t{number}" for number in range(10_000))
    targets = [(ACCOUNT, "ann"), (SAFE, "safe"), (ECHO, "echo")]
    found = [order for seed in range(300) for order in orders(Random(seed), targets, tokens)]
    assert not [each for each in found if each[1].startswith("sim.Echo") and each[0] == "lose"]
    wanted = {"pay", "lose", "ring", "ring_at", "cancel", "beat_skip", "beat_steps", "steps"}
    assert {each[0] for each in found} >= wanted
