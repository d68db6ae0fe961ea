"""What the judge makes of the order of a client's calls when an entity has lost what they
stored.
"""

from collections.abc import Sequence

import pytest

from sharding_app.testing.simulation.promises import (
    Call,
    Entry,
    PromiseBroken,
    order_is_kept,
    queries_keep_order,
)
from sharding_app.testing.simulation.world import World

ENTITY = "sim.Ledger/ledger-0"


def added(number: int, token: str) -> Call:
    return Call(number, "me", ENTITY, "add", (token,), 0.0)


def stored(*tokens: str) -> list[Entry]:
    return [Entry(seq, 1, token, 1.0) for seq, token in enumerate(tokens, 1)]


def judge(calls: Sequence[Call], entries: Sequence[Entry]) -> None:
    by_token = {token: call for call in calls for token in call.tokens}
    order_is_kept(ENTITY, entries, by_token)
    query = Call(3, "me", ENTITY, "total", (), 1.0, 2.0, value=(1, entries[0].token))
    queries_keep_order([query], entries, by_token)


@pytest.fixture
def world() -> World:
    world = World(0, 1, [], None)
    world.server.cluster.type_ids["sim.Ledger"] = 1
    world.witness.erasing[ENTITY] = [0]
    return world


def test_a_call_whose_trace_is_erased_may_take_effect_anew_behind_later_ones(world: World) -> None:
    witness, calls = world.witness, [added(1, "first"), added(2, "second")]
    for call in calls:
        witness.called(call, None, None)
    witness.journal[ENTITY] = stored("first")
    witness.erased("", 1, "ledger-0", 1, [])
    assert [call.forgotten for call in calls] == [True, False]
    judge(calls, stored("second", "first"))


def test_a_call_that_is_answered_is_not_sent_again_whatever_is_erased(world: World) -> None:
    witness, calls = world.witness, [added(1, "first"), added(2, "second")]
    for call in calls:
        witness.called(call, None, None)
    calls[0].ended = 1.0
    witness.journal[ENTITY] = stored("first")
    witness.erased("", 1, "ledger-0", 1, [])
    with pytest.raises(
        PromiseBroken, match=r"promise 5, order_is_kept: call me#1 took effect after its later call #2"
    ):
        judge(calls, stored("second", "first"))


def test_a_call_that_stored_nothing_before_an_erasure_keeps_its_place(world: World) -> None:
    witness, calls = world.witness, [added(1, "first"), added(2, "second")]
    for call in calls:
        witness.called(call, None, None)
    witness.journal[ENTITY] = stored("of another client")
    witness.erased("", 1, "ledger-0", 1, [])
    with pytest.raises(
        PromiseBroken, match=r"promise 5, order_is_kept: call me#1 took effect after its later call #2"
    ):
        judge(calls, stored("second", "first"))
