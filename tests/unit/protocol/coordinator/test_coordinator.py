"""The coordinator's machine: who may host, when it allocates, what it moves, and what it waits
for.
"""

from collections.abc import Collection, Mapping, Sequence, Set
from itertools import pairwise

import pytest

from sharding_app.protocol.allocation.external import ExternalAllocation
from sharding_app.protocol.allocation.least_shards import LeastShardAllocation
from sharding_app.protocol.allocation.singleton import SINGLETON, OldestAllocation
from sharding_app.protocol.allocation.strategy import Allocations, ClusterView
from sharding_app.protocol.allocation.workers import WORKERS
from sharding_app.protocol.coordinator.effects import Decide, Note, PutInForce
from sharding_app.protocol.coordinator.handoff import Phase
from sharding_app.protocol.coordinator.machine import Coordinator
from sharding_app.protocol.coordinator.settings import CoordinatorSettings
from sharding_app.protocol.coordinator.terms import lowest_epoch, next_term
from sharding_app.protocol.messages import (
    BeginHandOff,
    BeginHandOffAck,
    HandOff,
    HostShard,
    NoHome,
    ShardHome,
    ShardStarted,
    ShardStopped,
)
from sharding_app.protocol.numbering import Numbering
from sharding_app.protocol.records import Decision, HomeChange, Member, NumberOfWorkers, ShardRow
from sharding_app.protocol.transitions import IllegalTransition
from tests.unit.protocol.coordinator.coordination import TYPE, Play, node, told_home

ALL = range(12)
ONE = f"{SINGLETON}shop.Clock"


class Chosen:
    """A user's own strategy: one small class."""

    def __init__(self, home: str) -> None:
        self.home = home
        self.moves: list[int] = []

    def allocate(self, requester: str | None, shard: int, allocations: Allocations, view: ClusterView) -> str:
        return self.home

    def rebalance(
        self, allocations: Mapping[str, Sequence[int]], in_progress: Set[int], view: ClusterView
    ) -> list[int]:
        return self.moves


def sizes(play: Play, names: Collection[str]) -> list[int]:
    return [len(play.shards_of(name)) for name in names]


# -- Who gets a shard ------------------------------------------------------------------------------


def test_shards_spread_over_the_regions_and_the_asker_is_told_when_they_run() -> None:
    play = Play([node("a", 1), node("b", 2)])
    play.silent.add("b")
    play.ask("a", *ALL)
    assert sizes(play, "ab") == [6, 6]
    for shard, home in play.homes().items():
        assert told_home(play, "a", shard) == ("a" if home == "a" else None)
    play.silent.clear()
    play.wait(1)
    assert all(told_home(play, "a", shard) == home for shard, home in play.homes().items())


def test_a6_a_users_own_strategy_decides_where_and_what_moves() -> None:
    strategy = Chosen("a")
    play = Play([node("a", 1), node("b", 2)], strategy=strategy)
    play.ask("a", 1)
    strategy.home = "b"
    play.ask("a", 2, 3)
    assert play.homes() == {1: "a", 2: "b", 3: "b"}
    strategy.home = "a"
    strategy.moves = [2]
    play.wait(11)
    assert play.homes() == {1: "a", 2: "a", 3: "b"}
    assert [play.rows[TYPE, shard].epoch for shard in (1, 2, 3)] == [1, 2, 1]


def test_a_client_that_is_heard_of_no_more_is_told_of_no_more_moves() -> None:
    play = Play([node("a", 1), node("b", 2)])
    play.ask("a", 1)
    play.machine.proxy_registered("p-user", [TYPE], play.now)
    for target in "ba":
        play.machine.handoffs.begin([(TYPE, 1)], play.now, target)
        play.play()
        assert len(play.heard("p-user", BeginHandOff)) == 1
        play.wait(CoordinatorSettings().proxy_expiry_seconds + 1.0, step=1.0)


def test_a_coordinator_need_not_be_heard_by_itself() -> None:
    play = Play([node("a", 1)], rows=[ShardRow(TYPE, 1, 1, "a", "home")], unheard={"a"})
    play.wait(4.0)
    assert play.noted("node_unheard") == []
    play.ask("p-web", 2)
    assert play.homes() == {1: "a", 2: "a"}


def test_a_row_that_is_read_before_its_write_is_answered_is_started_all_the_same() -> None:
    play = Play([node("a", 1)])
    play.on_decide = lambda change: play.machine.rows_read(
        [TYPE], [ShardRow(TYPE, change.shard, change.epoch, change.home, change.step)], play.now
    )
    play.ask("p-web", 1)
    assert told_home(play, "p-web", 1) == "a"
    assert play.heard("a", HostShard)


def test_a_type_that_no_node_hosts_and_that_was_asked_for_is_named_for_a_minute() -> None:
    play = Play([node("a", 1)])
    play.ask("p-web", 1, type_name="shop.Other")
    assert play.machine.asked_in_vain(59.0) == ["shop.Other"]
    assert play.machine.asked_in_vain(60.0) == []


def test_a_hand_off_waits_for_no_node_that_does_not_host_the_type() -> None:
    play = Play([node("a", 1), node("b", 2), node("c", 3, types=("shop.Order",))])
    play.silent.add("c")
    play.ask("a", 1)
    play.machine.handoffs.begin([(TYPE, 1)], play.now, "b")
    play.play()
    assert (play.homes(), play.now) == ({1: "b"}, 0.0)


def test_a_hand_off_whose_new_home_cannot_be_written_yet_is_not_late_for_its_former_home() -> None:
    key = TYPE, 1
    play = Play([node("a", 1), node("b", 2)], settings=CoordinatorSettings(hand_off_timeout_seconds=1.0))
    play.ask("a", 1)
    play.on_decide = lambda change: play.refused.add(key)
    play.machine.handoffs.begin([key], play.now, "b")
    play.play()
    play.wait(3.0)
    assert (play.homes(), play.noted("hand_off_late")) == ({1: "a"}, [])
    play.refused.clear()
    play.wait(3.0)
    assert play.homes() == {1: "b"}


def test_a_coordinator_is_busy_until_the_wanted_number_of_workers_is_in_force() -> None:
    machine = Play([node("a", 1)]).machine
    wanted = NumberOfWorkers(TYPE, 2, 1)
    busy = [machine.busy]
    machine.workers_read([wanted], 0.1)
    busy.append(machine.busy)
    machine.in_force(wanted, NumberOfWorkers(TYPE, 1, 1), 0.2)
    busy.append(machine.busy)
    assert busy == [False, True, False]
    assert [
        [(change.shard, change.home) for change in each.changes]
        for each in machine.outbox.take()
        if isinstance(each, Decide)
    ] == [[(0, "a")]], "it gets its home at once"


def test_a_number_of_workers_comes_in_force_once_the_last_has_stopped() -> None:
    workers = f"{WORKERS}shop.imports"
    play = Play([node("a", 1, types=(workers,))], rows=[ShardRow(workers, 0, 1, "a", "home")])
    play.machine.workers_read([NumberOfWorkers(workers, 1, 2)], play.now)
    play.play()
    assert play.homes(workers) == {0: None}
    play.machine.tick(0.1)
    put = [each.before for each in play.machine.outbox.take() if isinstance(each, PutInForce)]
    assert put == [NumberOfWorkers(workers, 1, 2)]


def test_a_home_that_is_announced_is_not_told_once_more_to_those_who_asked() -> None:
    play = Play([node("a", 1), node("b", 2)])
    play.ask("a", 1)
    play.starts_nothing.add("b")
    play.machine.handoffs.begin([(TYPE, 1)], play.now, "b")
    play.play()
    play.ask("a", 1)
    play.starts_nothing.clear()
    play.told.clear()
    play.wait(1.0)
    assert [each.home for each in play.heard("a", ShardHome)] == ["b"]


@pytest.mark.parametrize("same_lineage", [True, False])
def test_the_timeline_says_that_the_server_went_back_in_time(same_lineage: bool) -> None:
    term = next_term(1, same_lineage=same_lineage, now_seconds=1_800_000_000)
    machine = Coordinator("a", term, CoordinatorSettings(), lambda _: LeastShardAllocation())
    machine.loaded([], [node("a", 1)], 0.0)
    noted = [each.decision.action for each in machine.outbox.take() if isinstance(each, Note)]
    assert ("database_moved_on" in noted) == (not same_lineage)


@pytest.mark.parametrize("asked", ["", "stop"])
def test_no_number_of_workers_comes_in_force_while_all_stops(asked: str) -> None:
    machine = Coordinator("a", 1, CoordinatorSettings(), lambda _: LeastShardAllocation())
    machine.loaded([], [node("a", 1, asked=asked)], 0.0)
    machine.workers_read([NumberOfWorkers(TYPE, 2, 1)], 0.1)
    put = [each for each in machine.outbox.take() if isinstance(each, PutInForce)]
    assert len(put) == (not asked)


def test_b1_4_only_nodes_that_host_the_type_get_its_shards() -> None:
    play = Play([node("a", 1, types=("shop.Order",)), node("b", 2), node("c", 3, state="joining")])
    play.ask("a", *ALL)
    play.ask("p-web", 12)
    assert sizes(play, "abc") == [0, 13, 0]


def test_a_node_that_was_not_heard_over_the_wire_gets_nothing() -> None:
    """It has a row, its locks and an echo of its own, and uses another Redis: it would answer
    no caller.
    """
    play = Play([node("a", 1), node("b", 2)], unheard={"b"})
    play.ask("a", *ALL)
    assert sizes(play, "ab") == [12, 0]
    play.wait(30)
    assert sizes(play, "ab") == [12, 0]
    play.unheard.clear()
    play.machine.registered("b", 0, play.now)
    play.play()
    play.ask("a", 12)
    assert sizes(play, "ab") == [12, 1]


def test_the_minimum_counts_nodes_that_were_heard() -> None:
    play = Play([node("a", 1), node("b", 2)], unheard={"b"}, settings=CoordinatorSettings(min_members=2))
    play.ask("a", 1)
    assert play.homes() == {}
    play.machine.registered("b", 1, play.now)
    play.play()
    assert play.homes() == {1: "a"}


def test_a_new_coordinator_trusts_homes_of_shards_for_a_moment_to_be_heard() -> None:
    rows = [ShardRow(TYPE, 1, 1, "b", "home"), ShardRow(TYPE, 2, 1, "dead", "home")]
    play = Play([node("a", 1), node("b", 2), node("c", 3)], rows=rows, unheard={"b", "c"})
    play.read()
    assert play.homes()[2] == "a"
    play.ask("a", 3, 4)
    assert sizes(play, "abc") == [2, 2, 0]
    play.wait(3.5)
    assert [each for each in play.notes if each.action == "node_unheard"] == [
        Decision("node_unheard", "b", "node-b")
    ]
    play.ask("a", 5, 6)
    assert sizes(play, "abc") == [4, 2, 0]


def elected(*members: Member, unheard: Collection[str], suspect: Collection[str] = ()) -> Play:
    """`me` has been elected, since the former coordinator is dead, which had the singleton and a
    shard.
    """
    rows = [ShardRow(ONE, 0, 1, "former", "home"), ShardRow(TYPE, 0, 1, "former", "home")]
    oldest = OldestAllocation()
    play = Play(
        [node("me", 2, types=(ONE, TYPE)), *members], rows=rows, unheard=unheard,
        strategy_of=lambda name: oldest if name == ONE else LeastShardAllocation(),
    )  # fmt: skip
    play.members = {
        each.incarnation: each for each in sorted(play.members.values(), key=lambda each: each.age)
    }
    play.read(suspect=list(suspect))
    return play


def test_a_new_coordinator_gives_a_singleton_away_when_older_nodes_can_have_been_heard() -> None:
    """They have no shards, so it cannot be known at once whether they were heard before. A
    singleton does not move again.
    """
    play = elected(node("old", 1, types=(ONE, TYPE)), node("young", 3, types=(ONE, TYPE)), unheard=["old"])
    assert play.homes(TYPE) == {0: "me"}, "all else goes on"
    assert play.homes(ONE) == {0: None}
    play.wait(1)
    assert play.homes(ONE) == {0: None}
    play.machine.registered("old", 1, play.now)
    play.play()
    assert play.homes(ONE) == {0: "old"}


def test_a_singleton_goes_to_the_oldest_that_was_heard_when_an_older_one_is_silent_for_too_long() -> None:
    play = elected(node("old", 1, types=(ONE, TYPE)), node("young", 3, types=(ONE, TYPE)), unheard=["old"])
    play.wait(2.9)
    assert play.homes(ONE) == {0: None}
    play.wait(0.2)
    assert play.homes(ONE) == {0: "me"}


@pytest.mark.parametrize(
    ("silent", "suspect"),
    [
        (node("young", 3, types=(ONE,)), []),
        (node("old", 1, types=(TYPE,)), []),
        (node("old", 1, types=(ONE,), deaf=True), []),
        (node("old", 1, types=(ONE,), state="leaving"), []),
        (node("old", 1, types=(ONE,)), ["old"]),
    ],
    ids=["is younger", "hosts it not", "is deaf", "leaves", "is in doubt"],
)
def test_a_singleton_does_not_wait_for_one_that(silent: Member, suspect: list[str]) -> None:
    play = elected(silent, unheard=[silent.incarnation], suspect=suspect)
    assert play.homes(ONE) == {0: "me"}


def test_a_suspect_or_deaf_node_gets_nothing_new() -> None:
    play = Play([node("a", 1), node("b", 2), node("c", 3, deaf=True)])
    play.read(suspect=["b"])
    play.ask("a", *ALL)
    assert sizes(play, "abc") == [12, 0, 0]


def test_b2_10_a_new_shard_waits_while_all_hosts_are_in_doubt_and_known_homes_are_told() -> None:
    play = Play([node("a", 1, types=()), node("b", 2), node("c", 3)])
    play.ask("a", 1)
    home = play.homes()[1]
    play.read(suspect=["b", "c"])
    play.told.clear()
    play.ask("a", 1, 2)
    play.wait(3)
    assert told_home(play, "a", 1) == home
    assert 2 not in play.homes()
    play.read()
    assert told_home(play, "a", 2) == play.homes()[2]


def test_when_no_node_hosts_the_type_the_asker_is_told() -> None:
    play = Play([node("a", 1, types=())])
    play.ask("a", 1)
    assert [each.type for each in play.heard("a", NoHome)] == [TYPE]
    assert play.homes() == {}


def test_m4_all_that_ask_for_a_shard_while_it_starts_are_told_once_it_runs() -> None:
    play = Play([node("a", 1), node("b", 2)])
    play.silent.add("a")
    play.ask("b", 1)
    play.ask("p-1", 1)
    play.ask("p-2", 1)
    assert [told_home(play, who, 1) for who in ("b", "p-1", "p-2")] == [None, None, None]
    play.silent.clear()
    play.wait(0.5)
    assert [told_home(play, who, 1) for who in ("b", "p-1", "p-2")] == ["a", "a", "a"]
    assert len(play.heard("p-1", ShardHome)) == 1


# -- Minimum numbers -------------------------------------------------------------------------------


def test_b2_8_nothing_is_allocated_before_the_wanted_number_is_there() -> None:
    settings = CoordinatorSettings(min_members=3)
    play = Play([node("a", 1), node("b", 2)], settings=settings)
    play.ask("a", 1, 2, 3)
    play.wait(2)
    assert play.homes() == {}
    play.join(node("c", 3, state="joining"))
    assert play.homes() == {}
    play.change("c", state="up")
    assert sizes(play, "abc") == [1, 1, 1]
    assert told_home(play, "a", 3) == play.homes()[3]


def test_b2_11_each_role_has_its_own_number() -> None:
    settings = CoordinatorSettings(min_members_of_role={"front": 1, "back": 2})
    play = Play([node("a", 1, roles=("front",), types=()), node("b", 2, roles=("back",))], settings=settings)
    play.ask("a", *ALL)
    assert play.homes() == {}
    play.join(node("c", 3, roles=("back",)))
    assert sizes(play, "abc") == [0, 6, 6]


def test_once_all_were_there_failover_waits_for_no_node() -> None:
    settings = CoordinatorSettings(min_members=2)
    play = Play([node("a", 1), node("b", 2)], settings=settings)
    play.ask("a", *ALL)
    play.die("b")
    assert sizes(play, "a") == [12]


def test_a_new_coordinator_of_a_running_cluster_does_not_wait_again_but_one_after_a_full_restart_does() -> (
    None
):
    settings = CoordinatorSettings(min_members=3)
    rows = [ShardRow(TYPE, 1, 5, "a", "home"), ShardRow(TYPE, 2, 5, "gone", "home")]
    running = Play([node("a", 1), node("b", 2)], settings=settings, rows=rows)
    running.read()
    assert running.homes() == {1: "a", 2: "b"}
    dead = node("a", 1, locks=0)
    restarted = Play([node("b", 2), node("c", 3), dead], settings=settings, rows=rows)
    restarted.die("a")
    restarted.ask("b", 1, 2)
    assert restarted.homes() == {1: None, 2: None}
    restarted.join(node("d", 4))
    assert None not in restarted.homes().values()


def test_one_that_is_not_judged_yet_or_in_doubt_does_not_count_for_the_minimum() -> None:
    """Rows of the dead are still there when a coordinator begins; after a failover they stay in
    doubt for long.
    """
    settings = CoordinatorSettings(min_members=2)
    play = Play([node("b", 2), node("a", 1, locks=0)], settings=settings)
    play.ask("b", 1)
    assert play.homes() == {}
    play.read(suspect=["a"])
    assert play.homes() == {}
    play.join(node("c", 3))
    assert play.homes() == {1: "b"}


# -- Rebalancing -----------------------------------------------------------------------------------


def test_a_new_node_gets_its_share_in_rounds_that_follow_each_other() -> None:
    play = Play([node("a", 1), node("b", 2)], strategy=LeastShardAllocation(5, 1.0))
    play.ask("a", *range(60))
    play.join(node("c", 3))
    play.wait(10.5)
    assert sizes(play, "abc") == [20, 20, 20]
    assert all(told_home(play, "a", shard) == home for shard, home in play.homes().items())


def test_a_round_never_moves_more_than_its_limit_at_a_time() -> None:
    play = Play([node("a", 1)], strategy=LeastShardAllocation(5, 1.0))
    play.ask("a", *range(60))
    most = 0

    def count(_: object) -> None:
        nonlocal most
        most = max(most, len(play.machine.handoffs.active))

    play.on_decide = count
    play.join(node("b", 2))
    play.wait(15)
    assert sizes(play, "ab") == [30, 30]
    assert most == 5


def test_after_a_round_all_rests_for_as_long_as_it_took() -> None:
    play = Play([node("a", 1)], strategy=LeastShardAllocation(5, 1.0))
    play.ask("a", *range(60))
    play.join(node("b", 2))
    play.silent.add("a")
    play.wait(10.4)
    assert len(play.machine.handoffs.active) == 5
    play.silent.discard("a")
    while play.machine.handoffs.active:
        play.wait(0.05)
    took = play.now - 10.0
    play.wait(took - 0.1)
    assert sizes(play, "ab") == [55, 5]
    play.wait(0.2)
    assert sizes(play, "ab") == [50, 10]


def test_a_strategy_that_never_rests_moves_a_shard_once_in_an_interval() -> None:
    strategy = Chosen("a")
    play = Play([node("a", 1), node("b", 2)], strategy=strategy)
    play.ask("a", 1)
    strategy.moves = [1]
    epochs = []
    for turn in range(4):
        strategy.home = "ab"[turn % 2]
        play.wait(10)
        epochs.append(play.rows[TYPE, 1].epoch)
    assert [after - before for before, after in pairwise(epochs)] == [1, 1, 1]


@pytest.mark.parametrize(
    "changes",
    [{"app_version": "2.0.0"}, {"state": "joining"}, {"state": "leaving", "types": ()}, {"deaf": True}],
)
def test_nothing_is_rebalanced_at_a_bad_time(changes: dict[str, object]) -> None:
    play = Play([node("a", 1)], strategy=LeastShardAllocation(20, 1.0))
    play.ask("a", *ALL)
    play.join(node("b", 2), node("c", 3, **changes))
    play.wait(30)
    assert sizes(play, "a") == [12]
    play.change("c", app_version="", state="up", deaf=False, types=(TYPE,))
    play.wait(11)
    assert sizes(play, "abc") == [4, 4, 4]


def test_a_shard_that_never_starts_at_its_home_can_be_moved_away() -> None:
    play = Play([node("a", 1)])
    play.starts_nothing.add("a")
    play.ask("a", 1, 2)
    assert len(play.machine.tables.starting) == 2
    play.join(node("b", 2))
    play.wait(10.5)
    assert play.heard("a", HostShard)[0].shards == [1, 2]
    assert sizes(play, "ab") == [1, 1]


def test_an_answer_to_a_former_coordinator_does_not_show_that_a_shard_runs() -> None:
    """A promotion has lost the step of a hand-off: the shard has stopped at the epoch of its row.

    Its home said ShardStarted before that, over a link that was stuck until now.
    """
    former, term = 1, next_term(1, same_lineage=False, now_seconds=1_800_000_000)
    rows = [ShardRow(TYPE, 1, 4, "b", "home")]
    play = Play([node("a", 1), node("b", 2)], rows=rows, term=term, starts_nothing={"b"})
    play.machine.receive("b", ShardStarted(former, TYPE, [1], [4]), play.now)
    play.told.clear()
    play.wait(1.0)
    assert play.heard("b", HostShard), "its home is asked until it has answered this coordinator"
    play.machine.receive("b", ShardStopped(TYPE, [1], [4], given_up=True), play.now)
    play.starts_nothing.clear()
    play.play()
    assert play.rows[TYPE, 1].epoch == lowest_epoch(term)
    assert not play.machine.tables.starting


def test_an_answer_to_a_former_coordinator_does_not_show_that_messages_are_held() -> None:
    play = Play([node("a", 1), node("b", 2), node("c", 3)], strategy=Chosen("a"), term=2)
    play.ask("a", 1)
    play.silent.add("c")
    play.machine.handoffs.begin([(TYPE, 1)], play.now, "b")
    play.play()
    play.machine.receive("c", BeginHandOffAck(1, TYPE, [1]), play.now)
    play.play()
    assert not play.heard("a", HandOff)
    play.machine.receive("c", BeginHandOffAck(2, TYPE, [1]), play.now)
    play.play()
    assert play.homes() == {1: "b"}


def test_a_leaving_node_is_emptied_and_gets_nothing_more() -> None:
    play = Play([node("a", 1), node("b", 2), node("c", 3)])
    play.ask("a", *ALL)
    play.change("c", state="leaving")
    assert sizes(play, "abc") == [6, 6, 0]
    play.ask("a", *range(12, 18))
    assert sizes(play, "abc") == [9, 9, 0]


def test_a_node_that_has_left_is_noted_and_all_are_told_though_it_had_no_shards() -> None:
    """Their links to it are dropped by this."""
    play = Play([node("a", 1), node("b", 2), node("c", 3)], strategy=Chosen("a"))
    play.ask("a", 1)
    play.change("c", state="leaving")
    play.members.pop("c")
    play.read()
    assert play.noted("node_left") == ["c"]
    assert (play.gone("a"), play.gone("b")) == (["c"], ["c"])


def test_an_acknowledgement_of_one_that_is_gone_is_not_waited_for() -> None:
    play = Play([node("a", 1), node("b", 2), node("c", 3)], strategy=Chosen("a"))
    play.ask("a", 1)
    play.silent.add("c")
    play.machine.handoffs.begin([(TYPE, 1)], play.now, "b")
    play.play()
    assert play.heard("c", BeginHandOff)
    assert not play.heard("a", HandOff)
    play.members.pop("c")
    play.read()
    assert play.homes() == {1: "b"}
    assert play.now == 0.0


def test_a_shard_that_moves_is_not_moved_once_more_by_the_same_hand_off() -> None:
    """Two changes of one row would be under way, each with a home of its own."""
    play = Play([node("a", 1), node("b", 2)], strategy=Chosen("a"))
    play.ask("a", 1)
    play.silent.add("a")
    play.machine.handoffs.begin([(TYPE, 1)], play.now, "b")
    play.wait(1.1)
    handoffs = play.machine.handoffs
    handoff = handoffs.active[TYPE, 1]
    assert handoff.phase is Phase.STOPPING
    handoffs._move((TYPE, 1), handoff)
    with pytest.raises(IllegalTransition, match="a hand-off that is MOVING cannot become MOVING"):
        handoffs._move((TYPE, 1), handoff)


def test_a_shard_that_moves_is_not_marked_for_another_move() -> None:
    """A second hand-off in the place of the first would wait anew for what has come already."""
    play = Play([node("a", 1), node("b", 2), node("c", 3)], strategy=Chosen("a"))
    play.ask("a", 1)
    play.silent.add("a")
    play.machine.handoffs.begin([(TYPE, 1)], play.now, "b")
    play.wait(1.1)
    marked: list[HomeChange] = []
    play.on_decide = lambda change: marked.append(change) if change.step == "handoff" else None
    play.machine.handoffs.begin([(TYPE, 1)], play.now, "c")
    play.wait(0.2)
    assert marked == []
    play.silent.clear()
    play.wait(60.0)
    assert play.homes() == {1: "b"}


# -- Who is told -----------------------------------------------------------------------------------


def test_processes_that_only_ask_are_told_of_the_types_that_they_use() -> None:
    play = Play([node("a", 1), node("b", 2)], strategy=Chosen("a"))
    machine = play.machine
    machine.proxy_registered("p-user", [TYPE], play.now)
    machine.proxy_registered("p-other", ["shop.Order"], play.now)
    play.ask("a", 1)
    machine.handoffs.begin([(TYPE, 1)], play.now, "b")
    play.play()
    play.wait(0.1)
    assert [len(play.heard(who, BeginHandOff)) for who in ("p-user", "p-other")] == [1, 0]
    assert (told_home(play, "p-user", 1), told_home(play, "p-other", 1)) == ("b", None)
    play.die("b")
    assert (play.gone("p-user"), play.gone("p-other")) == (["b"], ["b"]), "a link to it may be any process's"


def test_a_process_that_says_nothing_for_long_is_told_nothing_more() -> None:
    play = Play([node("a", 1), node("b", 2)], strategy=Chosen("a"))
    machine = play.machine
    for who in ("p-here", "p-away"):
        machine.proxy_registered(who, [TYPE], play.now)
    play.ask("a", 1)
    play.wait(machine.settings.proxy_expiry_seconds, step=1.0)
    assert set(machine.audience.proxies) == {"p-here", "p-away"}, "the time is not over"
    machine.proxy_registered("p-here", [TYPE], play.now)
    play.wait(1.0)
    assert set(machine.audience.proxies) == {"p-here"}
    machine.handoffs.begin([(TYPE, 1)], play.now, "b")
    play.play()
    play.wait(0.1)
    assert (told_home(play, "p-here", 1), told_home(play, "p-away", 1)) == ("b", None)


def test_homes_that_start_one_after_the_other_are_announced_sooner_to_few_than_to_many() -> None:
    play = Play([node("a", 1), node("b", 2)])
    machine = play.machine
    audience = machine.audience

    def waits(now: float) -> float:
        """Return the time that the second of two announcements waits."""
        audience.moved(TYPE, "a", 1, 1)
        audience.tick(now)
        assert audience.due == float("inf"), "the first one does not wait"
        audience.moved(TYPE, "b", 2, 1)
        audience.tick(now)
        due = audience.due
        audience.tick(due)
        assert not audience.busy
        return due - now

    assert waits(100.0) == pytest.approx(0.0004)
    for number in range(300):
        machine.proxy_registered(f"p-{number}", [TYPE], 200.0)
    assert waits(200.0) == pytest.approx(0.02)


def test_one_that_uses_more_types_now_is_told_of_these_too() -> None:
    play = Play([node("a", 1), node("b", 2)], strategy=Chosen("a"))
    machine = play.machine
    machine.proxy_registered("p-user", [], play.now)
    play.ask("a", 1)
    assert "p-user" not in machine.audience.of(TYPE)
    machine.proxy_registered("p-user", [TYPE], play.now)
    assert "p-user" in machine.audience.of(TYPE)
    assert machine.audience.includes("p-user", TYPE)
    assert not machine.audience.includes("p-user", "shop.Order")
    assert machine.audience.includes("a", "shop.Order"), "a member"
    assert not machine.audience.includes("p-stranger", TYPE)


def test_a_coordinator_that_has_nothing_to_do_is_not_busy() -> None:
    play = Play([node("a", 1), node("b", 2)])
    play.ask("a", *ALL)
    play.starts_nothing.add("c")
    play.join(node("c", 3))
    play.wait(30)
    assert play.machine.busy, "c is to start some, and is told again"
    play.starts_nothing.clear()
    play.wait(60)
    assert sizes(play, "abc") == [4, 4, 4]
    assert not play.machine.busy


# -- External locations ----------------------------------------------------------------------------


def test_a5_5_a_new_location_moves_a_running_shard_at_once() -> None:
    play = Play([node("a", 1), node("b", 2)], strategy=ExternalAllocation())
    play.machine.locations_read(TYPE, {}, play.now)
    play.ask("a", 1, 2)
    assert play.homes() == {1: "a", 2: "a"}
    play.machine.locations_read(TYPE, {1: "node-b"}, play.now)
    play.play()
    assert play.homes() == {1: "b", 2: "a"}
    assert play.now == 0.0


def test_a5_6_and_a5_7_a_location_may_wait_for_its_node_and_change_again() -> None:
    play = Play([node("a", 1), node("b", 2)], strategy=ExternalAllocation())
    play.machine.locations_read(TYPE, {1: "node-d"}, play.now)
    play.ask("b", 1)
    assert play.homes() == {1: "b"}
    play.join(node("d", 4))
    assert play.homes() == {1: "d"}
    play.machine.locations_read(TYPE, {1: "node-a"}, play.now)
    play.play()
    assert play.homes() == {1: "a"}


def test_a_shard_moves_to_its_location_once_its_node_is_up() -> None:
    play = Play([node("a", 1), node("b", 2, state="joining")], strategy=ExternalAllocation())
    play.machine.locations_read(TYPE, {1: "node-b"}, play.now)
    play.ask("a", 1)
    assert play.homes() == {1: "a"}
    play.change("b", state="up")
    assert (play.homes(), play.now) == ({1: "b"}, 0.0)


def test_a_reading_that_shows_nothing_new_asks_no_strategy() -> None:
    class Counting(ExternalAllocation):
        asked = 0

        def rebalance(
            self, allocations: Mapping[str, Sequence[int]], in_progress: Set[int], view: ClusterView
        ) -> list[int]:
            self.asked += 1
            return super().rebalance(allocations, in_progress, view)

    strategy = Counting()
    play = Play([node("a", 1), node("b", 2)], strategy=strategy)
    play.machine.locations_read(TYPE, {1: "node-b"}, play.now)
    play.ask("a", 1)
    before = strategy.asked
    play.read()
    assert strategy.asked == before
    play.change("b", state="leaving")
    assert strategy.asked > before


def test_locations_that_cannot_be_read_leave_everything_where_it_is() -> None:
    play = Play([node("a", 1), node("b", 2)], strategy=ExternalAllocation())
    play.machine.locations_read(TYPE, {1: "node-b"}, play.now)
    play.ask("a", 1)
    play.machine.locations_read(TYPE, None, play.now)
    play.ask("a", 2)
    before = dict(play.rows)
    assert play.homes() == {1: "b", 2: "a"}
    play.wait(30)
    assert play.rows == before, "nothing has been away and come back"


def test_a_shard_that_stopped_while_no_node_could_take_it_gets_a_home_when_one_can() -> None:
    play = Play([node("a", 1), node("b", 2, state="joining")])
    play.ask("p-1", 0)
    assert play.rows[TYPE, 0].home == "a"
    play.machine.regions_leave("a", [TYPE], play.now)
    play.play()
    assert play.rows[TYPE, 0].step == "stopped"
    play.change("b", state="up")
    assert play.rows[TYPE, 0].home == "b", "though no region asks: remembered entities may live in it"
    assert not play.machine.handoffs.active


def test_what_stopped_with_the_whole_cluster_runs_again_with_it_once_enough_nodes_are_there() -> None:
    rows = [ShardRow(TYPE, shard, 3, None, "stopped") for shard in range(4)]
    play = Play([node("a", 1)], rows=rows, settings=CoordinatorSettings(min_members=2))
    play.read()
    assert set(play.homes().values()) == {None}
    play.join(node("b", 2, asked="stop"))
    assert set(play.homes().values()) == {None}
    play.change("b", asked=None)
    assert sizes(play, "ab") == [2, 2]


def test_shards_that_a_type_has_no_more_are_forgotten() -> None:
    """Its data was removed while nodes of other types lived on, and it came back with fewer
    shards.
    """
    rows = [ShardRow(TYPE, shard, 5, None, "stopped") for shard in range(4)]
    play = Play([node("a", 1, types=()), node("b", 2, deaf=True)], numbers={TYPE: 4}, rows=rows)
    play.ask("p-1", 1, 3)
    play.machine.types_read({TYPE: Numbering(2)})
    play.change("b", deaf=False)
    play.wait(30)
    assert play.homes() == {0: "b", 1: "b", 2: None, 3: None}
    assert [(each.reason, each.shards) for each in play.heard("p-1", NoHome)] == [("no_such_shard", [3])]
    assert set(play.machine.placement.rows) == {(TYPE, 0), (TYPE, 1)}
    assert not play.machine.busy


def test_a_home_is_told_no_more_of_a_shard_that_has_vanished_before_it_ran() -> None:
    play = Play([node("a", 1)])
    play.starts_nothing.add("a")
    play.ask("a", 1, 2)
    play.machine.types_read({TYPE: Numbering(2)})
    play.told.clear()
    play.wait(5)
    assert {shard for each in play.heard("a", HostShard) for shard in each.shards} == {1}


def test_a_shard_of_a_type_that_no_node_hosts_any_more_stays_where_it_is() -> None:
    rows = [ShardRow("shop.Gone", 1, 3, None, "stopped")]
    play = Play([node("a", 1)], rows=rows)
    play.read()
    assert play.homes("shop.Gone") == {1: None}
    assert not play.heard("a", NoHome)


# -- When everything stops -------------------------------------------------------------------------


def test_b2_23_once_all_is_to_stop_nothing_is_rebalanced_yet_known_and_new_shards_answer() -> None:
    play = Play([node("a", 1), node("b", 2)], strategy=LeastShardAllocation(20, 1.0))
    play.ask("a", *ALL)
    play.change("a", asked="prepare")
    play.change("b", asked="prepare")
    play.join(node("c", 3, asked="prepare"))
    play.wait(30)
    assert sizes(play, "abc") == [6, 6, 0]
    play.ask("a", 1, 12)
    assert told_home(play, "a", 1) == play.homes()[1]
    assert play.homes()[12] == "c"


def test_moves_that_wait_for_others_are_forgotten_once_all_is_to_stop() -> None:
    settings = CoordinatorSettings(max_concurrent_hand_offs=1)
    play = Play([node("a", 1), node("b", 2)], strategy=Chosen("a"), settings=settings)
    play.ask("a", 1, 2)
    play.silent.add("a")
    play.machine.handoffs.begin([(TYPE, 1), (TYPE, 2)], play.now, "b")
    play.play()
    assert list(play.machine.handoffs.queued) == [(TYPE, 2)]
    for name in "ab":
        play.change(name, asked="prepare")
    play.wait(0.1)
    for name in "ab":
        play.change(name, asked=None)
    play.silent.clear()
    play.wait(5)
    assert play.homes() == {1: "b", 2: "a"}, "what was begun ends, and no more begins"


def test_what_a_node_leaves_behind_when_all_stops_waits_until_it_is_asked_for() -> None:
    play = Play([node("a", 1), node("b", 2)])
    play.ask("a", *ALL)
    lost = play.shards_of("b")
    play.change("a", asked="stop")
    play.change("b", asked="stop", state="leaving")
    assert not play.heard("b", HandOff)
    play.members.pop("b")
    play.read()
    assert [play.homes()[shard] for shard in lost] == [None] * 6
    play.ask("a", lost[0])
    assert play.homes()[lost[0]] == "a"
    assert [play.homes()[shard] for shard in lost[1:]] == [None] * 5


def test_when_the_request_is_taken_back_rebalancing_goes_on() -> None:
    play = Play([node("a", 1)], strategy=LeastShardAllocation(20, 1.0))
    play.ask("a", *ALL)
    play.change("a", asked="prepare")
    play.join(node("b", 2))
    play.wait(30)
    assert sizes(play, "ab") == [12, 0]
    play.change("a", asked=None)
    play.wait(11)
    assert sizes(play, "ab") == [6, 6]


def test_a_paused_cluster_is_not_rebalanced() -> None:
    play = Play([node("a", 1)], strategy=LeastShardAllocation(20, 1.0))
    play.ask("a", *ALL)
    play.machine.rebalancing.enabled = False
    play.join(node("b", 2))
    play.wait(30)
    assert sizes(play, "ab") == [12, 0]
    play.machine.rebalancing.enabled = True
    play.wait(11)
    assert sizes(play, "ab") == [6, 6]


def test_a_shard_that_its_home_gives_up_gets_a_new_epoch_and_everybody_is_told() -> None:
    play = Play([node("a", 1), node("b", 2)])
    play.ask("a", 0)
    home = play.homes()[0]
    assert home is not None
    play.machine.given_up("b" if home == "a" else "a", TYPE, [0], [1])
    play.machine.given_up(home, TYPE, [0, 1], [0, 1])
    play.play()
    assert play.rows[TYPE, 0].epoch == 1, "only its home may, and only at its epoch"
    play.machine.given_up(home, TYPE, [0], [1])
    play.machine.given_up(home, TYPE, [0], [1])
    play.play()
    assert play.rows[TYPE, 0].epoch == 2
    assert play.noted("shard_given_up") == [f"{TYPE}/0"], "said twice, done once"
    for who in ("a", "b"):
        assert told_home(play, who, 0) == play.homes()[0]


def test_a_shard_that_is_given_up_during_its_hand_off_is_the_hand_offs() -> None:
    play = Play([node("a", 1), node("b", 2)])
    play.ask("a", 0)
    home = play.homes()[0]
    assert home is not None
    play.silent.add(home)
    play.machine.handoffs.begin([(TYPE, 0)], play.now)
    play.play()
    play.machine.given_up(home, TYPE, [0], [1])
    play.play()
    assert play.rows[TYPE, 0].epoch == 1
    assert play.rows[TYPE, 0].step == "handoff"


def test_a_home_that_is_to_be_buried_gives_up_nothing() -> None:
    """Its shards are fenced when it is buried: before that it may still answer from them."""
    play = Play([node("a", 1), node("b", 2)])
    play.ask("a", 0)
    home = play.homes()[0]
    assert home is not None
    play.machine.members_read(list(play.members.values()), [home], (), play.now)
    play.machine.given_up(home, TYPE, [0], [1])
    assert not play.machine.tables.writing
    play.play()
    assert play.noted("shard_given_up") == []
    assert play.rows[TYPE, 0].epoch == 2


def test_a_strategy_is_told_which_nodes_leave() -> None:
    play = Play([node("a", 1), node("b", 2, state="leaving"), node("c", 3, state="joining")])
    hosts = play.machine.placement.view(TYPE).hosts
    assert {name: host.leaving for name, host in hosts.items()} == {"a": False, "b": True}


def test_nothing_given_up_gets_a_new_home_once_everything_is_to_stop() -> None:
    play = Play([node("a", 1), node("b", 2)])
    play.ask("a", 0)
    home = play.homes()[0]
    assert home is not None
    for name in ("a", "b"):
        play.change(name, state="leaving", asked="stop")
    play.machine.given_up(home, TYPE, [0], [1])
    play.play()
    assert play.rows[TYPE, 0].epoch == 1
