"""Any sequence of commands, failures, crashes, moves, snapshots, trims and recoveries gives the
state that the journal's fold gives, and a retried command takes effect once. On real nodes over the
in-memory servers; time is skipped.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sharding_app import EntityFailed, NotSerializable, PartiallyApplied, ShardingSettings
from sharding_app.runtime.base.config import NodeConfig
from sharding_app.testing.cluster import MemoryCluster
from tests.support.hurry import hurry
from tests.unit.runtime.one_of_each import Cart

WINDOW = 60.0
LONGER = 100.0
SKUS = ("book", "pen")


class Plain(Cart, name="entities.PropertyPlain"):
    """Keeps every event."""


class Trimmed(Cart, name="entities.PropertyTrimmed"):
    settings = ShardingSettings(snapshot_every=2, keep_snapshots=1, delete_events=True)


class HotTrimmed(Cart, name="entities.PropertyHotTrimmed"):
    settings = ShardingSettings(snapshot_every=3, keep_snapshots=2, delete_events=True, pipelined=True)


ACTIONS = st.one_of(
    st.tuples(st.sampled_from(["add", "in_two", "fail", "fail_partly", "refuse"]), st.sampled_from(SKUS)),
    st.tuples(st.just("once"), st.sampled_from(["first", "second", "third"])),
    st.tuples(st.sampled_from(["burst", "burst_and_crash", "burst_and_move"]), st.sampled_from(SKUS)),
    st.tuples(st.sampled_from(["forget", "crash", "move", "wait"]), st.just("")),
)


class Story:
    """One cart, what is done to it, and what it must hold."""

    def __init__(self, cluster: MemoryCluster, kind: type[Cart]) -> None:
        self.cluster = cluster
        self.kind = kind
        self.expected: Counter[str] = Counter()
        self.events = 0
        self.said: dict[str, tuple[float, int]] = {}
        "By command id: when it was given, and the first reply."

    async def act(self, action: str, about: str) -> None:
        await getattr(self, f"_{action}")(about)
        await self.check()

    async def check(self) -> None:
        assert await self.kind.ref("a").content() == dict(self.expected)
        rows = self.cluster._rows(self.kind, "a")
        assert max(rows, default=0) == self.events
        assert list(rows) == list(range(self.events - len(rows) + 1, self.events + 1)), "no gap"
        if self.kind is Plain:
            folded: Counter[str] = Counter()
            for each in self.cluster.events(self.kind, "a"):
                folded[each.sku] += each.quantity
            assert folded == self.expected

    def _count(self, sku: str, *quantities: int) -> None:
        self.expected[sku] += sum(quantities)
        self.events += len(quantities)

    async def _add(self, sku: str) -> None:
        self._count(sku, 1)
        assert await self.kind.ref("a").add(sku) == self.expected[sku]

    async def _in_two(self, sku: str) -> None:
        self._count(sku, 1, 10)
        assert await self.kind.ref("a").add_in_two(sku) == self.expected[sku]

    async def _fail(self, sku: str) -> None:
        with pytest.raises(EntityFailed):
            await self.kind.ref("a").add_then_raise(sku)

    async def _fail_partly(self, sku: str) -> None:
        self._count(sku, 1)
        with pytest.raises(PartiallyApplied):
            await self.kind.ref("a").add_then_raise_later(sku)

    async def _refuse(self, sku: str) -> None:
        self.cluster.fail_next_write(self.kind, "a")
        with pytest.raises(NotSerializable):
            await self.kind.ref("a").add(sku)

    async def _once(self, command_id: str) -> None:
        now = self.cluster.clock.now()
        reply = await self.kind.ref("a", command_id=command_id).add(command_id)
        at, first = self.said.get(command_id, (0.0, 0))
        if first and now - at < WINDOW:
            assert reply == first, "a retry: the first reply, and no effect"
        else:
            self._count(command_id, 1)
            assert reply == self.expected[command_id]
            self.said[command_id] = now, reply

    async def _burst(self, sku: str) -> None:
        await self._all_of(sku)

    async def _burst_and_crash(self, sku: str) -> None:
        await self._all_of(sku, self._crash)

    async def _burst_and_move(self, sku: str) -> None:
        await self._all_of(sku, self._move)

    async def _all_of(self, sku: str, disturb: object = None) -> None:
        """Eight at once, with the ids that `ask` gives by itself if its node dies."""
        before = self.expected[sku]
        asked = [asyncio.ensure_future(self.kind.ref("a", timeout=30).add(sku)) for _ in range(8)]
        if callable(disturb):
            await asyncio.sleep(0)
            await disturb("")
        self._count(sku, *[1] * 8)
        assert await asyncio.gather(*asked) == list(range(before + 1, before + 9))

    async def _forget(self, _: str) -> None:
        self.cluster.forget()

    async def _crash(self, _: str) -> None:
        if home := self.cluster.home_of(self.kind, "a"):
            await self.cluster.kill_node(home)
            await self.cluster.add_node()

    async def _move(self, _: str) -> None:
        if home := self.cluster.home_of(self.kind, "a"):
            await self.cluster.stop_node(home)
            await self.cluster.add_node()

    async def _wait(self, _: str) -> None:
        await asyncio.sleep(LONGER)


@pytest.mark.parametrize("kind", [Plain, Trimmed, HotTrimmed])
@given(actions=st.lists(ACTIONS, min_size=1, max_size=15))
@settings(max_examples=25)
def test_the_state_is_the_fold_and_retries_take_effect_once(
    kind: type[Cart], actions: list[tuple[str, str]]
) -> None:
    async def main() -> None:
        config = NodeConfig(command_window_seconds=WINDOW, ask_timeout_seconds=30.0)
        async with MemoryCluster([kind], nodes=2, config=config) as cluster:
            with cluster.in_use():
                story = Story(cluster, kind)
                for action, about in actions:
                    await story.act(action, about)
                cluster.forget()
                await story.check()

    hurry(main())
