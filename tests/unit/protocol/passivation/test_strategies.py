"""Who leaves the memory: the sequences of the reference's tests, on the pure strategies."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharding_app.protocol.messages import Deliver
from sharding_app.protocol.passivation.frequency_sketch import MOST_COUNTERS, FrequencySketch
from sharding_app.protocol.passivation.hill_climbing import HillClimbing
from sharding_app.protocol.passivation.recency import LeastFrequentlyUsed, Tracked
from sharding_app.protocol.passivation.strategy import (
    COMPOSITE,
    NAMED,
    AdmissionWindow,
    FrequencyFilter,
    Passivation,
    WindowClimbing,
    passivation,
)
from sharding_app.protocol.shard import Shard, Slot


class Region:
    """Shards that share a limit; tells who was stopped."""

    def __init__(self, wanted: Passivation, limit: int) -> None:
        self.wanted, self.limit = wanted, limit
        self.shards: dict[int, tuple[object, dict[int, Tracked]]] = {}

    def use(self, entity: int, shard: int = 1) -> list[int]:
        stopped: list[int] = []
        if shard not in self.shards:
            self.shards[shard] = self.wanted.strategy(max(1, self.limit // (len(self.shards) + 1))), {}
            stopped += self.spread(self.limit)
        strategy, nodes = self.shards[shard]
        node = nodes.setdefault(entity, Tracked(str(entity)))
        return stopped + self._gone(shard, strategy.touched(node))  # type: ignore[attr-defined]

    def use_all(self, entities: Iterable[int], shard: int = 1) -> list[int]:
        return [each for entity in entities for each in self.use(entity, shard)]

    def spread(self, limit: int) -> list[int]:
        self.limit = limit
        stopped = []
        for number, (strategy, _) in self.shards.items():
            stopped += self._gone(number, strategy.resized(max(1, limit // len(self.shards))))  # type: ignore[attr-defined]
        return stopped

    def passivate(self, entity: int, shard: int) -> None:
        strategy, nodes = self.shards[shard]
        strategy.removed(nodes.pop(entity))  # type: ignore[attr-defined]

    def state(self, shard: int = 1) -> set[int]:
        return set(self.shards[shard][1])

    def _gone(self, shard: int, evicted: list[Tracked]) -> list[int]:
        nodes = self.shards[shard][1]
        for each in evicted:
            assert each.place is None
            del nodes[int(each.id)]
        return [int(each.id) for each in evicted]


def numbers(first: int, last: int) -> set[int]:
    return set(range(first, last + 1))


def test_d3_least_recently_used() -> None:
    region = Region(NAMED["least-recently-used"], 10)
    assert region.use_all(range(1, 21)) == list(range(1, 11))
    assert region.state() == numbers(11, 20)
    assert region.use(21, 2) == [11, 12, 13, 14, 15]
    region.use_all(range(1, 21))
    assert region.state() == numbers(16, 20)
    assert region.use_all([22, 23, 24], 2) == []
    assert region.use(31, 3) == [16, 17, 21]
    region.use_all([18, 19], 1)
    region.use_all([27, 28, 29], 2)
    region.use_all([37, 38, 39], 3)
    for shard, entity in ((1, 19), (2, 29), (3, 39)):
        region.passivate(entity, shard)
        assert region.use(entity + 100, shard) == [], "its place is free"


def test_d3_a_shard_keeps_its_own_order() -> None:
    """Where nothing but recency counts, the shard does it without a strategy."""
    shard = Shard("t", 1, 1, Slot)

    def use(*entities: int) -> list[str]:
        for entity in entities:
            shard.deliver("a", Deliver("t", 1, 1, str(entity), entity, "x", b""), 0.0)
        stopped, shard.evicted = [each.id for each in shard.evicted], []
        for each in stopped:
            shard.drop(shard.slots[each])
        return stopped

    shard.limit(5)
    assert use(1, 2, 3, 4, 5) == []
    assert use(1, 6, 7) == ["2", "3"]
    assert use(4, 8) == ["5"]
    shard.limit(3)
    assert use() == ["1", "6"]
    assert use(9) == ["7"]
    shard.drop(shard.slots["8"])
    assert use(10) == [], "its place is free"
    assert sorted(shard.slots) == ["10", "4", "9"]


def test_a_shard_tells_its_strategy_of_each_use_and_of_those_that_leave() -> None:
    shard = Shard("t", 1, 1, Slot)
    shard.limit(2, NAMED["least-frequently-used"].strategy(2))

    def use(*entities: str) -> list[str]:
        for entity in entities:
            shard.deliver("a", Deliver("t", 1, 1, entity, 1, "x", b""), 0.0)
        stopped, shard.evicted = [each.id for each in shard.evicted], []
        for each in stopped:
            shard.drop(shard.slots[each])
        return stopped

    assert use("a", "a", "b") == []
    assert shard.recency.size == 2
    assert use("c") == ["b"], "it was used less often"
    shard.drop(shard.slots["a"])
    assert use("d") == [], "its place is free"
    shard.limit(1)
    assert use() == ["c"], "the strategy stays"
    shard.limit(0)
    assert use("e", "f") == []
    assert sorted(shard.slots) == ["d", "e", "f"]


@pytest.mark.parametrize("name", NAMED)
def test_entities_that_were_here_before_the_limit_count_too(name: str) -> None:
    """Messages may come before the limit is shared out among the shards, or while there is none."""
    shard = Shard("t", 1, 1, Slot)

    def use(*entities: int) -> None:
        for entity in entities:
            shard.deliver("a", Deliver("t", 1, 1, str(entity), entity, "x", b""), 0.0)

    def leave() -> set[str]:
        stopped, shard.evicted = [each.id for each in shard.evicted], []
        for each in stopped:
            shard.drop(shard.slots[each])
        return set(stopped)

    use(*range(20), 0)
    shard.limit(5, NAMED[name].strategy(5))
    stopped = leave()
    assert (len(stopped), len(shard.slots)) == (15, 5)
    if name == "least-recently-used":
        assert "0" not in stopped, "it was used last"
    shard.limit(0)
    use(*range(20))
    assert len(shard.slots) == 20
    shard.limit(5, NAMED[name].strategy(5))
    leave()
    use(*range(100, 110))
    leave()
    assert len(shard.slots) == 5


def test_d5_most_recently_used() -> None:
    region = Region(NAMED["most-recently-used"], 10)
    assert region.use_all(range(1, 21)) == list(range(10, 20))
    assert region.state() == {*numbers(1, 9), 20}
    assert region.use(21, 2) == [20, 9, 8, 7, 6]
    assert region.use(20) == [5]
    assert region.state() == {1, 2, 3, 4, 20}
    region.use_all([22, 23, 24], 2)
    assert region.use(31, 3) == [20, 4, 24]
    assert (region.state(1), region.state(2), region.state(3)) == ({1, 2, 3}, {21, 22, 23}, {31})


def test_d6_least_frequently_used() -> None:
    region = Region(NAMED["least-frequently-used"], 10)
    stopped = {}
    for entity in range(1, 21):
        for _ in range((entity - 1) % 4 + 1):
            if gone := region.use(entity):
                stopped[entity] = gone[0]
    assert stopped == {11: 1, 12: 5, 13: 9, 14: 13, 15: 2, 16: 6, 17: 10, 18: 17, 19: 14, 20: 18}
    assert region.state() == {3, 7, 11, 15, 19, 4, 8, 12, 16, 20}
    assert region.use(21, 2) == [3, 7, 11, 15, 19]
    region.use_all([22, 23, 23, 24, 24, 21], 2)
    assert region.use(31, 3) == [4, 8, 22]
    assert (region.state(1), region.state(2), region.state(3)) == ({12, 16, 20}, {21, 23, 24}, {31})


def test_d7_aging_lets_go_what_was_used_often_once() -> None:
    plain, aging = (
        Region(NAMED[name], 4) for name in ("least-frequently-used", "least-frequently-used-with-aging")
    )
    for region in (plain, aging):
        region.use_all([1, 2, 3, 4] * 20)
        region.use_all(each for entity in range(100, 200) for each in (entity, entity))
    assert len(plain.state() & {1, 2, 3, 4}) == 3
    assert not aging.state() & {1, 2, 3, 4}


@pytest.mark.parametrize("aging", [False, True])
@given(
    st.lists(
        st.tuples(st.sampled_from(["use", "use", "use", "gone", "evict"]), st.integers(1, 8)), max_size=200
    )
)
def test_d6_as_a_plain_list_of_counts_says(aging: bool, steps: list[tuple[str, int]]) -> None:
    policy = LeastFrequentlyUsed(aging=aging)
    nodes: dict[int, Tracked] = {}
    priorities: dict[int, int] = {}
    "By entity, the one used last at the end."
    uses: dict[int, int] = {}
    age = 0
    for what, number in steps:
        if what == "use":
            if number in nodes:
                policy.renew(nodes[number])
            else:
                policy.add(nodes.setdefault(number, Tracked(str(number))))
            uses[number] = uses.get(number, 0) + 1
            priorities.pop(number, None)
            priorities[number] = uses[number] + age
        elif what == "evict" and nodes:
            lowest = min(priorities.values())
            number = next(each for each, priority in priorities.items() if priority == lowest)
            victim = policy.victim()
            assert victim is nodes[number]
            policy.remove(victim)
            age = lowest if aging else 0
            del nodes[number], priorities[number], uses[number]
        elif what == "gone" and number in nodes and not aging:
            policy.remove(nodes.pop(number))
            del priorities[number], uses[number]
        assert policy.size == len(nodes)


@pytest.mark.parametrize("aging", [False, True])
def test_d6_uses_below_the_limit_leave_nothing_behind(aging: bool) -> None:
    """Nothing is evicted here, so the lowest frequency is never looked for."""
    policy = LeastFrequentlyUsed(aging=aging)
    seldom, often = Tracked("seldom"), Tracked("often")
    policy.add(seldom)
    policy.add(often)
    for _ in range(10_000):
        policy.renew(often)
    assert len(policy._counts) < 200
    assert policy.victim() is seldom
    policy.remove(seldom)
    assert policy.victim() is often


def test_d4_segments_keep_what_is_used_again() -> None:
    region = Region(Passivation(segments=(0.2, 0.8)), 10)
    region.use_all(range(1, 11))
    region.use_all(range(1, 9))
    assert region.use_all(range(100, 150))[:2] == [9, 10]
    assert numbers(1, 8) <= region.state(), "a scan drives out nothing of the upper level"


@pytest.mark.parametrize(
    ("name", "stopped"),
    [
        ("least-recently-used", [16, 17]),
        ("least-frequently-used", [16, 17]),
        ("most-recently-used", [5, 4]),
    ],
)
def test_d9_another_limit(name: str, stopped: list[int]) -> None:
    region = Region(NAMED[name], 10)
    region.use_all(range(1, 21))
    region.use(21, 2)
    assert region.spread(6) == stopped
    assert len(region.state()) == 3
    region.spread(12)
    assert region.use_all([40, 41, 42]) == []


def test_d10_window_and_filter() -> None:
    region = Region(
        Passivation(segments=(0.25, 0.75), window=AdmissionWindow(proportion=0.2), filter=FrequencyFilter()),
        20,
    )
    assert region.use_all(range(1, 41)) == list(range(17, 37))
    assert region.state() == {*numbers(1, 16), *numbers(37, 40)}
    assert region.use_all(range(1, 21)) == [37, 38, 39, 40]
    assert region.state() == numbers(1, 20)
    assert region.use_all(each for entity in range(17, 21) for each in [entity] * 5) == []
    assert region.use_all(range(21, 25)) == [1, 2, 3, 4]
    assert region.use_all(range(25, 29)) == [21, 22, 23, 24]
    assert region.use(41, 2) == [25, 26, 17, 18, 19, 20, 5, 6, 7, 8]
    assert region.state() == {*numbers(9, 16), 27, 28}


def test_d11_filter_without_a_window() -> None:
    region = Region(Passivation(filter=FrequencyFilter()), 10)
    assert region.use_all(range(1, 21)) == list(range(11, 21)), "not admitted"
    assert region.use_all(each for entity in range(11, 21) for each in [entity] * 5) == list(range(1, 11))
    assert region.use_all(each for entity in range(1, 11) for each in [entity] * 2) == [
        each for entity in range(1, 11) for each in [entity] * 2
    ]
    assert region.use(21, 2) == [11, 12, 13, 14, 15]
    assert region.use_all(range(1, 6)) == [16, 17, 18, 19, 20], "counts begin anew with another limit"
    assert region.use_all(range(6, 11)) == [6, 7, 8, 9, 10]
    assert region.state() == numbers(1, 5)


def test_d12_an_adaptive_window() -> None:
    climbing = WindowClimbing(adjust_multiplier=2, initial_step=0.4, restart_threshold=0.8, step_decay=0.5)
    window = AdmissionWindow(proportion=0.1, minimum=0.1, climbing=climbing)
    region = Region(Passivation(window=window, filter=FrequencyFilter(reset_multiplier=100)), 10)

    def each_times(entities: Iterable[int], times: int) -> list[int]:
        return region.use_all(each for entity in entities for each in [entity] * times)

    def sizes() -> tuple[int, int]:
        strategy = region.shards[1][0]
        return strategy.window_limit, strategy.window.size  # type: ignore[attr-defined]

    each_times(range(1, 11), 10)
    assert sizes() == (1, 1)
    for _ in range(4):
        region.use_all(range(11, 21))
    assert region.state() == {*numbers(1, 9), 20}
    assert sizes() == (5, 5)
    assert each_times(range(21, 31), 2) == [20, 1, 2, 3, 4, 21, 22, 23, 24, 25]
    assert sizes() == (7, 7)
    assert each_times(range(21, 25), 5) == [26, 27, 28, 29]
    assert sizes() == (8, 8)
    for _ in range(2):
        region.use_all(range(31, 41))
    assert region.state() == {8, 9, *numbers(33, 40)}
    assert sizes() == (7, 7)
    assert each_times(range(41, 51), 2) == list(range(34, 44))
    assert sizes() == (3, 3)
    assert each_times(range(51, 61), 2) == list(range(48, 58))
    assert sizes() == (1, 1)
    assert region.use_all(range(61, 71)) == list(range(60, 70))
    assert region.state() == {70, 8, 9, 33, 44, 45, 46, 47, 58, 59}


def test_d13_hill_climbing() -> None:
    climber = HillClimbing(10, initial_step=0.123, restart_threshold=0.5, step_decay=0.5)
    assert [climber.record(hit=number < 4) for number in range(10)] == [0.0] * 9 + [-0.123]
    steps = [step for number in range(30) if (step := climber.record(hit=number % 10 < 4))]
    assert steps == pytest.approx([-0.0615, -0.03075, -0.015375])
    fallen = [step for _ in range(10) if (step := climber.record(hit=False))]
    assert fallen == pytest.approx([0.0076875]), "the direction flips when fewer are found"
    risen = [step for _ in range(20) if (step := climber.record(hit=True))]
    assert risen == pytest.approx([0.00384375, 0.123]), "a great change begins the search anew"


def test_the_sketch_counts_and_forgets() -> None:
    sketch = FrequencySketch(64, reset_after=100)
    for _ in range(9):
        sketch.add("often")
    sketch.add("once")
    assert (sketch.frequency("often"), sketch.frequency("once"), sketch.frequency("never")) == (9, 1, 0)
    for number in range(90):
        sketch.add(f"other {number % 5}")
    assert sketch.frequency("often") == 4
    for bits in (2, 12, 40):
        wide = FrequencySketch(8, counter_bits=bits, reset_after=8)
        for _ in range(8):
            wide.add("a")
        assert wide.frequency("a") == min(8, 2**bits - 1) // 2


@pytest.mark.parametrize("name", NAMED)
@given(
    limit=st.integers(1, 8),
    steps=st.lists(
        st.tuples(st.sampled_from(["use", "use", "use", "gone", "limit"]), st.integers(1, 12)), max_size=120
    ),
)
def test_never_more_than_the_limit_and_none_twice(
    name: str, limit: int, steps: list[tuple[str, int]]
) -> None:
    strategy = NAMED[name].strategy(limit)
    nodes: dict[int, Tracked] = {}
    for what, number in steps:
        evicted: list[Tracked] = []
        if what == "use":
            evicted = strategy.touched(nodes.setdefault(number, Tracked(str(number))))
        elif what == "gone" and number in nodes:
            strategy.removed(nodes.pop(number))
        elif what == "limit":
            limit = number
            evicted = strategy.resized(limit)
        for each in evicted:
            assert nodes.pop(int(each.id)) is each
            assert each.place is None
        assert len(nodes) <= limit
        assert all(each.place is not None for each in nodes.values())


@pytest.mark.parametrize(
    ("settings", "most", "beyond"),
    [
        (FrequencyFilter, {"depth": 1}, {"depth": 0}),
        (FrequencyFilter, {"counter_bits": 2}, {"counter_bits": 1}),
        (FrequencyFilter, {"counter_bits": 64}, {"counter_bits": 65}),
        (FrequencyFilter, {"width_multiplier": 1}, {"width_multiplier": 0}),
        (FrequencyFilter, {"reset_multiplier": 0.1}, {"reset_multiplier": 0.0}),
        (WindowClimbing, {"adjust_multiplier": 0.1}, {"adjust_multiplier": 0.0}),
        (WindowClimbing, {"initial_step": 1.0}, {"initial_step": 1.1}),
        (WindowClimbing, {"initial_step": 0.1}, {"initial_step": 0.0}),
        (WindowClimbing, {"restart_threshold": 0.1}, {"restart_threshold": 0.0}),
        (WindowClimbing, {"step_decay": 1.0}, {"step_decay": 1.1}),
        (AdmissionWindow, {"minimum": 0.01}, {"minimum": 0.0}),
        (AdmissionWindow, {"minimum": 0.01, "proportion": 0.01}, {"minimum": 0.02, "proportion": 0.01}),
        (AdmissionWindow, {"proportion": 0.4, "maximum": 0.4}, {"proportion": 0.5, "maximum": 0.4}),
        (AdmissionWindow, {"maximum": 1.0}, {"maximum": 1.1}),
        (Passivation, {"segments": (0.5, 0.5)}, {"segments": (0.5, 0.6)}),
        (Passivation, {"segments": (0.1, 0.9)}, {"segments": (0.0, 0.9)}),
        (Passivation, {"segments": [0.1, 0.9]}, {"segments": 0.9}),
        (Passivation, {"filter": FrequencyFilter()}, {"filter": FrequencyFilter}),
        (Passivation, {"window": AdmissionWindow()}, {"window": 0.1}),
        (AdmissionWindow, {"climbing": WindowClimbing()}, {"climbing": True}),
        (AdmissionWindow, {"minimum": 0.001}, {"minimum": "0.001"}),
        (FrequencyFilter, {"width_multiplier": 2}, {"width_multiplier": 1.5}),
        (FrequencyFilter, {"depth": 2}, {"depth": 2.0}),
        (FrequencyFilter, {"counter_bits": 8}, {"counter_bits": 8.0}),
        (FrequencyFilter, {"reset_multiplier": 1e9}, {"reset_multiplier": float("inf")}),
        (FrequencyFilter, {"reset_multiplier": 2}, {"reset_multiplier": timedelta(seconds=2)}),
        (WindowClimbing, {"adjust_multiplier": 1e9}, {"adjust_multiplier": float("inf")}),
    ],
)
def test_settings_reach_to_their_bounds_and_no_further(
    settings: Callable[..., object], most: dict[str, object], beyond: dict[str, object]
) -> None:
    settings(**most)
    with pytest.raises(ValueError, match="passivation: "):
        settings(**beyond)


def test_a_limit_that_means_no_limit_costs_no_memory() -> None:
    strategy = NAMED["composite"].strategy(2**63 - 1)
    assert strategy.touched(Tracked("a")) == []
    assert strategy.resized(2**62) == []
    assert sum(map(len, FrequencySketch(2**65, reset_after=8)._rows)) == 4 * MOST_COUNTERS


def test_a_smaller_window_lets_go_of_none_while_there_is_room() -> None:
    strategy = Passivation(window=AdmissionWindow(proportion=0.5), filter=FrequencyFilter()).strategy(100)
    nodes = [Tracked(str(number)) for number in range(20)]
    assert [gone for node in nodes for gone in strategy.touched(node)] == []
    assert strategy.resized(30) == [], "its window has room for 15, all of it for 30"
    assert all(node.place is not None for node in nodes)
    assert len(strategy.resized(10)) == 10


def test_the_same_limit_again_forgets_no_use() -> None:
    strategy = Passivation(filter=FrequencyFilter()).strategy(1)
    old, new = Tracked("old"), Tracked("new")
    for _ in range(3):
        assert strategy.touched(old) == []
    assert strategy.resized(1) == []
    assert strategy.touched(new) == [new]


def test_wrong_settings_are_told() -> None:
    with pytest.raises(ValueError, match="there are least-recently-used"):
        passivation("lru")
    for wrong in (
        lambda: Passivation(replacement="random"),  # type: ignore[arg-type]
        lambda: Passivation(segments=(0.5, 0.8)),
        lambda: Passivation(replacement="most-recently-used", segments=(0.5, 0.5)),
        lambda: Passivation(dynamic_aging=True),
        lambda: AdmissionWindow(proportion=0.5, maximum=0.4),
        lambda: FrequencyFilter(counter_bits=65),
        lambda: WindowClimbing(step_decay=0),
    ):
        with pytest.raises(ValueError, match="passivation: "):
            wrong()
    assert passivation("composite") is COMPOSITE


def test_only_an_eviction_makes_those_that_come_later_older() -> None:
    """An entity that stops by itself says nothing of how often the ones that stay are used."""
    order, often, seldom, new = LeastFrequentlyUsed(aging=True), *(Tracked(each) for each in "abc")
    for each in (often, seldom):
        order.add(each)
    for _ in range(4):
        order.renew(often)
    order.remove(often)
    order.add(new)
    assert new.place is seldom.place, "as if it had come when the other did"
    order.remove(order.victim())
    order.add(often)
    assert often.place.rank == 2
