"""One entity never stops the others: whatever its code raises, returns or waits for costs
itself.
"""

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from sharding_app import AskTimeout, ShardingError
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.execution.nasty import ERRORS, Good, Nasty, NastyValue, Odd, Trap

pytestmark = pytest.mark.asyncio

PLACES = {
    "staged": "step",
    "async": "step_later",
    "async_partly": "step_later",
    "thread": "step_in_a_thread",
    "also": "step_with_rows",
    "also_now": "step_with_rows_now",
    "query": "sum",
    "applier": "step",
    "snapshot_when": "step",
    "snapshot": "step",
    "set _sharding_staging": "step",
    "get context": "step",
    "del": "step",
}


STORES_NOTHING = {"staged", "async", "thread", "also", "also_now", "query", "applier"}
"""Places at which the command has failed as a whole."""


@pytest.fixture(autouse=True)
def disarmed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(Trap, "armed", "")
    monkeypatch.setattr(Trap, "error", "")
    yield
    Trap.armed = ""
    gc.collect()


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[MemoryCluster]:
    async with MemoryCluster([Nasty, NastyValue, Odd, Good]) as made:
        with made.in_use():
            await Good.ref("beside").step(1)
            yield made


def arm(place: str, error: str) -> None:
    Trap.armed, Trap.error = place, error


async def is_well(cluster: MemoryCluster) -> None:
    """The node is the same, and others on it go on."""
    (node,) = cluster.nodes.values()
    assert node.state == "up"
    assert not node.failed.is_set()
    total = await Good.ref("beside").step(1)
    assert await Good.ref("beside").step(1) == total + 1


@pytest.mark.parametrize(("place", "name"), PLACES.items())
async def test_what_is_raised_costs_its_own_command(cluster: MemoryCluster, place: str, name: str) -> None:
    for number, error in enumerate(ERRORS, 1):
        ref = Nasty.ref(error)
        await ref.step(1)
        arm(place, error)
        others = [Good.ref(str(other)).step(1) for other in range(3)]
        call = getattr(ref, name)
        mine, *theirs = await asyncio.gather(
            call() if name == "sum" else call(1), *others, return_exceptions=True
        )
        assert theirs == [number] * 3
        assert not isinstance(mine, AskTimeout), f"{error}: its asker is told at once"
        assert place not in STORES_NOTHING or isinstance(mine, ShardingError), error
        Trap.armed = ""
        gc.collect()
        total = await ref.step(1)
        assert total == 2 if place in STORES_NOTHING else total >= 2, error
        await is_well(cluster)


@pytest.mark.parametrize("place", ["init", "applier", "restore", "set total", "set _sharding_staging"])
async def test_what_is_raised_at_a_recovery_costs_its_own_entity(cluster: MemoryCluster, place: str) -> None:
    for number, error in enumerate(ERRORS, 1):
        ref = Nasty.ref(error)
        await ref.step(1)
        await ref.step(1)
        cluster.forget(Nasty)
        arm(place, error)
        mine, other = await asyncio.gather(ref.sum(), Good.ref("2").step(1), return_exceptions=True)
        assert other == number
        assert not isinstance(mine, AskTimeout), error
        Trap.armed = ""
        assert await ref.sum() == 2
        await is_well(cluster)


@pytest.mark.parametrize("place", ["value", "value_snapshot", "value_restore"])
async def test_the_same_of_values(cluster: MemoryCluster, place: str) -> None:
    for error in ERRORS:
        ref = NastyValue.ref(error)
        assert await ref.step(1) == 1
        if place == "value_restore":
            cluster.forget(NastyValue)
        arm(place, error)
        with pytest.raises(ShardingError) as raised:
            await ref.step(1)
        assert not isinstance(raised.value, AskTimeout), error
        Trap.armed = ""
        assert await ref.sum() == 1
        assert await ref.step(1) == 2
        await is_well(cluster)


@pytest.mark.parametrize(
    "name",
    ["cancel_me", "cancel_me_and_return", "huge", "a_generator", "deep", "endless", "a_coroutine"],
)
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
async def test_what_is_returned_or_cancelled_costs_its_own_command(cluster: MemoryCluster, name: str) -> None:
    ref = Odd.ref("1")
    try:
        await getattr(ref, name)()
    except AskTimeout:
        raise
    except ShardingError:
        pass
    assert await ref.fine() == 1
    await is_well(cluster)


async def test_one_that_waits_for_ever_stands_alone(cluster: MemoryCluster) -> None:
    waiting = asyncio.ensure_future(Odd.ref("1", timeout=0.2).never())
    assert await Odd.ref("2").fine() == 1
    with pytest.raises(AskTimeout):
        await waiting
    await is_well(cluster)
