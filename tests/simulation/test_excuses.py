"""What excuses an answer that is not the journal's, an erasure or an error, and what does not."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

import pytest

from sharding_app.errors import EntityFailed, InvalidCall, PartiallyApplied, ShardingError
from sharding_app.protocol.ids import Epoch
from sharding_app.protocol.numbering import Numbering
from sharding_app.protocol.records import Lineage, TypeConfig
from sharding_app.runtime.journal.commits import ResidentShard
from sharding_app.runtime.node.node import Node
from sharding_app.testing.simulation.checker import LEAST_WINDOW_SECONDS, Witness
from sharding_app.testing.simulation.promises import Call, Entry, is_shown_by
from sharding_app.testing.simulation.workload import REMEMBERED
from sharding_app.testing.simulation.world import World

ENTITY = "sim.Ledger/ledger-0"
WITH_SECOND = 11
"""A seed with a journal of that name."""


def stored(*tokens: str) -> list[Entry]:
    return [Entry(seq, 1, token, 0.0) for seq, token in enumerate(tokens, 1)]


def added(number: int, *tokens: str, value: int | None = None) -> Call:
    return Call(number, "me", ENTITY, "add", tokens, 0.0, value=value)


def asked(number: int, seen: int, last: str, began: float = 0.0) -> Call:
    return Call(number, "me", ENTITY, "total", (), began, value=(seen, last))


def failed(error: ShardingError, *tokens: str, books: str = "") -> Call:
    command = "book" if books else "add_in_steps"
    return Call(1, "me", ENTITY, command, tokens, 0.0, error=error, books=books)


@pytest.fixture
def world() -> World:
    world = World(1, 1, [], None)
    world.server.cluster.type_ids["sim.Ledger"] = 1
    return world


def told(world: World, *calls: Call) -> str:
    """Let calls be answered in turn, and return what is found to be wrong."""
    for call in calls:
        world.witness.called(call, None, None)
        call.ended = world.now
        world.witness.answered(call)
    return "" if world.failure is None else world.failure.name


def erase(witness: Witness, epoch: int = 0) -> None:
    """Let the entity be erased while its operator waits."""
    witness.erasing[ENTITY] = [epoch]
    witness.erased("", 1, "ledger-0", len(witness.journal.get(ENTITY, ())), [])
    witness.erasing[ENTITY].clear()


def lose_the_tail(world: World, kept: Sequence[Entry]) -> None:
    """Let an asynchronous standby take over that has only these events."""
    witness = world.witness
    before, answered = list(witness.journal[ENTITY]), witness._answered.get(ENTITY, ())
    witness.journal[ENTITY] = list(kept)
    witness._tails.lost(ENTITY, before, answered, world.now)
    witness._is_of_the_past(ENTITY, before, kept)


# -- Numbers of shards that a server has lost ------------------------------------------------------


@pytest.mark.parametrize(("lineages_ago", "found"), [(0, [1]), (1, [1, 5]), (2, [1])])
def test_a_home_without_news_of_a_promotion_may_go_by_the_numbers_of_its_own_lineage(
    world: World, lineages_ago: int, found: list[int]
) -> None:
    """It may go by no numbers of a lineage in which it has not lived."""
    name, server, witness = "sim.Ledger", world.server, world.witness
    entity = next(each for each in map(str, range(1000)) if Numbering(12).shard_of(each) == 5)
    server.timeline = 2
    server.cluster.types[name] = TypeConfig(name, "stored", 12, "", "", "", "events")
    witness.is_losing_its_tail()
    server.timeline = 3
    server.cluster.types[name] = TypeConfig(name, "stored", 2, "", "", "", "events")
    lived = Lineage(server.identity.system, server.timeline - lineages_ago)
    node = SimpleNamespace(lifeline=SimpleNamespace(lease=SimpleNamespace(lineage=lived)))
    assert witness._shards_of(name, entity, cast(Node, node)) == found


# -- Remembered entities whose rows a server has lost ----------------------------------------------


@pytest.mark.parametrize("journal", ["", "second"])
@pytest.mark.parametrize(
    ("lineages_ago", "was_there", "is_there", "excused"),
    [
        (1, True, False, True),
        (0, True, False, False),
        (2, True, False, False),
        (1, False, False, False),
        (1, True, True, False),
    ],
    ids=["no news", "news", "news of another promotion", "never stored", "stored again"],
)
def test_a_home_without_news_of_a_promotion_may_go_by_a_lost_row_of_a_remembered_entity(
    journal: str, lineages_ago: int, was_there: bool, is_there: bool, excused: bool
) -> None:
    """Its start was stored, and the home handles what waited for that. Of a further journal's
    promotion a home hears later, and of that one alone.
    """
    world = World(WITH_SECOND, 1, [], None)
    server, registry, where = world.servers[journal], world.registry, world.where
    world.server.cluster.type_ids["sim.Watch"] = 2
    rows = server.journal.remembered
    server.timeline = 2
    number = world.shard_of("sim.Watch", "watch-0")
    where._lie["sim.Watch", number] = journal
    rows[2, number] = {"watch-0": None} if was_there else {}
    registry.is_losing_its_tail(server)
    server.timeline = 3
    rows[2, number] = {"watch-0": None} if is_there else {}
    lived = Lineage(server.identity.system, server.timeline - lineages_ago)
    if journal:
        where._started["sim.Watch", number, Epoch(7)] = lived
    lease = SimpleNamespace(lineage=world.server.identity.lineage if journal else lived)
    node = cast(Node, SimpleNamespace(lifeline=SimpleNamespace(lease=lease)))
    shard = cast(ResidentShard, SimpleNamespace(number=number, epoch=7))
    assert registry._goes_by_a_lost_row(node, REMEMBERED, shard, "watch-0") is excused


# -- Erasures --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("epoch", "late"), [(0, False), (1, True)])
def test_an_operator_who_waits_excuses_an_erasure_at_the_epoch_of_that_home_alone(
    world: World, epoch: int, late: bool
) -> None:
    """A home that has crashed never answers. At the next epoch nothing of its erasure executes."""
    world.witness.journal[ENTITY] = stored("a")
    erase(world.witness, epoch)
    assert (world.failure is not None and world.failure.name == "nothing_is_erased_late") is late


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (added(1, "a", value=1), ""),
        (added(1, "b", value=1), "acknowledged_is_stored"),
        (asked(1, 1, "a"), ""),
        (asked(1, 0, ""), ""),
        (asked(1, 1, "b"), "reads_are_linearizable"),
        (asked(1, 2, "a"), "reads_are_linearizable"),
        (failed(PartiallyApplied("late"), "a", "b"), ""),
        (failed(PartiallyApplied("late"), "b", "a"), "partly_is_stored"),
    ],
)
def test_an_answer_that_comes_behind_an_erasure_has_been_right_once(
    world: World, call: Call, name: str
) -> None:
    world.witness.journal[ENTITY] = stored("a")
    erase(world.witness)
    assert told(world, call) == name


# -- A lost tail -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "shows"),
    [
        (added(1, "a", value=1), True),
        (added(1, "a", "b", value=2), True),
        (added(1, "a", value=2), False),
        (added(1, "c", value=3), False),
        (asked(1, 2, "b"), True),
        (asked(1, 3, "c"), False),
        (asked(1, 0, ""), False),
    ],
)
def test_an_answer_shows_what_stands_in_the_journal_as_it_said(call: Call, shows: bool) -> None:
    call.ended = 1.0
    assert is_shown_by(call, stored("a", "b")) is shows


def test_after_the_loss_of_a_tail_the_rest_that_was_shown_still_has_to_be_seen(world: World) -> None:
    world.witness.journal[ENTITY] = stored("a", "b", "c")
    assert told(world, added(1, "b", value=2), added(2, "c", value=3)) == ""
    lose_the_tail(world, stored("a", "b"))
    assert told(world, asked(3, 2, "b", began=1.0)) == ""
    assert told(world, asked(4, 1, "a", began=1.0)) == "reads_are_linearizable"


def test_a_home_without_the_news_answers_no_less_of_the_tail_than_was_shown(world: World) -> None:
    world.witness.journal[ENTITY] = stored("a", "b", "c")
    assert told(world, added(1, "b", value=2)) == ""
    lose_the_tail(world, [])
    world.witness._tails.handles(ENTITY, aware=False, now=2.0)
    assert told(world, asked(2, 3, "c", began=1.0)) == ""
    assert told(world, asked(3, 1, "a", began=1.0)) == "reads_are_linearizable"


# -- Errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seconds", "name"), [(0.05, ""), (-0.05, "errors_are_typed")])
def test_only_a_call_that_has_lasted_may_be_too_old(world: World, seconds: float, name: str) -> None:
    call = failed(InvalidCall("old", code="too_old"), "a")
    call.began = world.now - LEAST_WINDOW_SECONDS - seconds
    assert told(world, call) == name


@pytest.mark.parametrize(("at", "name"), [(0.0, ""), (-1.0, "errors_are_typed")])
def test_a_statement_of_a_users_own_fails_only_while_the_server_refuses_it(
    world: World, at: float, name: str
) -> None:
    world.witness.statement_failed_at = at
    error = EntityFailed("it raised", params={"error": "ServerError"})
    assert told(world, failed(error, books="row")) == name


# -- Order -----------------------------------------------------------------------------------------


def test_a_call_with_a_command_id_loses_its_place_only_when_it_is_made_again(world: World) -> None:
    first, second = added(1, "a"), added(2, "b")
    for each in (first, second):
        world.witness.called(each, None, None)
    before = [each.is_ordered for each in (first, second)]
    again = Call(3, "me-2", ENTITY, "add", ("a",), 0.0, repeated=True)
    world.witness.called(again, None, None)
    assert before == [True, True]
    assert [each.is_ordered for each in (first, second)] == [False, True]
