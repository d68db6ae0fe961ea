"""Whatever comes from the wire, the coordinator goes on: for everybody, with every promise of its
rows.
"""

from typing import Any, cast

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from sharding_app.adapters.memory.cluster_rows import ClusterRows
from sharding_app.protocol.codec import encode_message
from sharding_app.protocol.coordinator.settings import CoordinatorSettings
from sharding_app.protocol.messages import (
    AnyMessage,
    BeginHandOffAck,
    GetShardHome,
    GracefulShutdownReq,
    OperatorRequest,
    Register,
    RegisterProxy,
    ShardStarted,
    ShardStopped,
    Suspect,
)
from sharding_app.protocol.records import HomeChange, TypeConfig
from sharding_app.runtime.coordinator_shell import FOR_THE_COORDINATOR, CoordinatorShell
from tests.unit.protocol.arbitrary import any_of
from tests.unit.protocol.coordinator.coordination import TYPE, Play, node, told_home

SHARDS = 8
SOURCES = ["a", "b", "c", "p-1", "p-2", "n-stranger", ""]
_types = st.sampled_from([TYPE, TYPE, TYPE, TYPE, "shop.Order", "", "x\0", "shop.Nothing"])
_shard = st.one_of(st.integers(0, SHARDS - 1), st.sampled_from([-1, SHARDS, 1 << 31, (1 << 64) - 1]))
_epoch = st.integers(-1, 6)
_sources = st.sampled_from(SOURCES)
_pairs = st.lists(st.tuples(_shard, _epoch), max_size=4)


def _paired(kind: Any, *first: Any, **more: Any) -> Any:
    return st.builds(
        lambda *given, **rest: kind(
            *given[:-1], [each[0] for each in given[-1]], [each[1] for each in given[-1]], **rest
        ),
        *first, _types, _pairs, **more,
    )  # fmt: skip


LIKELY: st.SearchStrategy[AnyMessage] = st.one_of(
    st.builds(GetShardHome, _types, st.lists(_shard, max_size=5)),
    _paired(ShardStarted, st.integers(0, 2)),
    _paired(ShardStopped, given_up=st.booleans()),
    st.builds(BeginHandOffAck, st.integers(0, 2), _types, st.lists(_shard, max_size=5)),
    st.builds(Register, _sources, st.integers(0, 2)),
    st.builds(RegisterProxy, _sources, st.lists(_types, max_size=3)),
    st.builds(GracefulShutdownReq, _sources, st.lists(_types, max_size=3)),
    st.builds(Suspect, st.lists(_sources, max_size=3)),
    st.builds(
        OperatorRequest, st.just(1), st.sampled_from(["rebalance", "pause", "resume", "move", "?"]), _types, _shard,
        target=_sources, by=st.text(max_size=3),
    ),
)  # fmt: skip
"""What may really come, with wrong values among right ones: arbitrary ones alone would never meet a
shard that moves.
"""

STEPS = st.lists(
    st.one_of(
        st.tuples(_sources, LIKELY),
        st.tuples(_sources, any_of(FOR_THE_COORDINATOR)),
        st.sampled_from(["tick", "late tick", "read", "c dies", "b leaves"]),
    ),
    min_size=6,
    max_size=30,
)


class Reasonable:
    """A user's own strategy, so that the coordinator asks one."""

    def allocate(self, requester: Any, shard: int, allocations: Any, view: Any) -> str:
        return cast("str", min(allocations, key=lambda each: (len(allocations[each]), each)))

    def rebalance(self, allocations: Any, in_progress: Any, view: Any) -> list[int]:
        return [shard for shards in allocations.values() for shard in shards[3:]]


class Wire:
    """A coordinator whose shell takes messages as they come, over rows with the store's own
    rules.
    """

    def __init__(self) -> None:
        members = [node(name, age) for age, name in enumerate("abc", 1)]
        self.rows = ClusterRows(lambda key: False)
        self.rows.register_types([TypeConfig(TYPE, "memory", SHARDS, "e", "h", "", "postgres")])
        self.rows.coordinator = msgspec.structs.replace(self.rows.coordinator, term=1)
        self.play = Play(
            members, strategy=Reasonable(), numbers={TYPE: SHARDS}, settings=CoordinatorSettings(), store=self.rows
        )  # fmt: skip
        self.shell = CoordinatorShell(
            "a", 1, cast("Any", None), cast("Any", self), lambda to, message: bool(encode_message(message)),
            lambda to, message: None, CoordinatorSettings(), lambda _: Reasonable(), 3.0, lambda _: None, 0.5,
        )  # fmt: skip
        self.shell.machine = self.play.machine

    def now(self) -> float:
        return self.play.now

    def take(self, source: str, message: AnyMessage) -> None:
        if isinstance(message, FOR_THE_COORDINATOR):
            self.shell._take(source, message, self.play.now)
            self.play.play()

    def step(self, what: str) -> None:
        play = self.play
        match what:
            case "tick":
                play.wait(0.3)
            case "late tick":
                play.wait(12.0, step=1.0)
            case "c dies" if "c" in play.members:
                play.die("c")
            case "b leaves" if "b" in play.members:
                play.change("b", state="leaving")
            case _:
                play.read()


@settings(max_examples=60)
@given(STEPS)
def test_no_message_ends_the_coordinator_or_stops_it_for_others(steps: list[Any]) -> None:
    wire = Wire()
    epochs: dict[int, int] = {}
    wire.play.ask("p-1", *range(SHARDS // 2))
    for each in steps:
        if isinstance(each, str):
            wire.step(each)
        else:
            wire.take(*each)
        for (name, shard), row in wire.rows.shards.items():
            assert name == TYPE
            assert 0 <= shard < SHARDS
            assert row.home in {"a", "b", "c", None}
            assert row.epoch >= epochs.get(shard, 0), "an epoch went back"
            epochs[shard] = row.epoch
    wire.play.wait(7.0, step=0.25)
    wire.shell._take("a", OperatorRequest(1, "resume"), wire.play.now)
    wire.play.machine.placement._barred_regions.clear()
    wire.play.read()
    wire.play.told.clear()
    wire.play.ask("p-web", *range(SHARDS))
    wire.play.wait(5.0, step=0.25)
    wire.play.ask("p-web", *range(SHARDS))
    for shard in range(SHARDS):
        row = wire.rows.shards[TYPE, shard]
        assert told_home(wire.play, "p-web", shard) == row.home
        assert row.home in wire.play.members
    assert len(wire.play.machine.tables.writing) == 0
    assert set(wire.play.machine.waiters) == set()


def test_a_change_of_the_helper_is_refused_as_the_store_would() -> None:
    wire = Wire()
    change = HomeChange(TYPE, 1 << 31, 0, 1, "a", "home")
    wire.play.refuse_or_write([change])
    assert (TYPE, 1 << 31) not in wire.rows.shards
