"""Remembered entities that stop while others start again, and shards that go and come back while
rows are written.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import pytest

from sharding_app.ports.journal import JournalUnavailable, Mark, RowRefused, ShardsFenced
from sharding_app.protocol.ids import ShardId
from sharding_app.protocol.shard import Shard
from sharding_app.runtime.hosting.remembered import STARTED_AT_ONCE, Remembering
from sharding_app.runtime.journal.commits import Resident, ResidentShard
from tests.support.slack import SLACK


class Rows:
    """The journal's part of it: the entities of shard 0 that run, and what is done before a reading
    is answered.
    """

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        self.running = {"a", "b", "c", "d"}
        self._meanwhile = meanwhile

    async def recall(self, type_id: int, shards: Sequence[ShardId]) -> dict[ShardId, list[str]]:
        found = {0: sorted(self.running)}
        self._meanwhile()
        return found

    async def remember(self, marks: Sequence[Mark]) -> None:
        for each in marks:
            (self.running.add if each.runs else self.running.discard)(each.entity)


class Loads:
    def __init__(self) -> None:
        self.loaded: list[str] = []
        self.fenced: list[int] = []
        self.on_load: Callable[[str], None] = lambda entity: None

    def spawn(self, job: Coroutine[Any, Any, None]) -> None:
        raise NotImplementedError

    def load(self, slot: Resident) -> None:
        self.loaded.append(slot.id)
        self.on_load(slot.id)

    def start_elsewhere(self, entity: str) -> Awaitable[object]:
        raise NotImplementedError

    def fenced_shard(self, shard: ResidentShard) -> None:
        self.fenced.append(shard.epoch)


@pytest.mark.parametrize("when", ["while the rows are read", "before its turn"])
def test_what_has_stopped_before_its_turn_is_not_started_again(when: str) -> None:
    """Its row is gone: it would run without one."""

    async def scenario() -> list[str]:
        shard, region = Shard("shop.Cart", 0, 1, Resident), Loads()
        early = when == "while the rows are read"
        rows = Rows(lambda: remembering.stopped(shard, "c") if early else None)
        remembering = Remembering(
            1, rows, region, lambda entity: 0, lambda: 0.0, rate=(1, 0.01)  # type: ignore[arg-type]
        )  # fmt: skip
        last = asyncio.Event()

        def loads(entity: str) -> None:
            if entity == "a" and not early:
                remembering.stopped(shard, "c")
            if entity == "d":
                last.set()

        region.on_load = loads
        job = asyncio.create_task(remembering.run())
        remembering.recall(shard)
        await last.wait()
        job.cancel()
        return region.loaded

    assert asyncio.run(scenario()) == ["a", "b", "d"]


class Fence:
    """A journal that refuses what comes from before the present life of a shard."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.written: list[Mark] = []

    async def remember(self, marks: Sequence[Mark]) -> None:
        if any(each.epoch < self.epoch for each in marks):
            raise ShardsFenced(frozenset((1, each.shard) for each in marks))
        self.written += marks


def test_a_late_refusal_of_a_former_life_stops_no_shard_that_is_back() -> None:
    """The stop of an entity was still to be written when its shard went; the shard is back here by
    then.
    """

    async def scenario() -> tuple[list[str], list[int], list[tuple[str, int]]]:
        former, back, region, journal = (
            Shard("shop.Cart", 0, 1, Resident),
            Shard("shop.Cart", 0, 3, Resident),
            Loads(),
            Fence(3),
        )
        remembering = Remembering(1, journal, region, lambda entity: 0, lambda: 0.0)  # type: ignore[arg-type]
        started = asyncio.Event()
        region.on_load = lambda entity: started.set()
        remembering.stopped(former, "a")
        slot = back.start("b", 0.0)
        assert slot is not None
        remembering.started(slot)
        job = asyncio.create_task(remembering.run())
        await started.wait()
        job.cancel()
        return region.loaded, region.fenced, [(each.entity, each.epoch) for each in journal.written]

    assert asyncio.run(scenario()) == (["b"], [1], [("b", 3)])


class Picky:
    """A journal that fails whatever holds one entity's row, or one shard's."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.written: set[str] = set()

    async def remember(self, marks: Sequence[Mark]) -> None:
        if any(each.entity == "bad" for each in marks):
            raise self.error
        self.written |= {each.entity for each in marks}

    async def recall(self, type_id: int, shards: Sequence[ShardId]) -> dict[ShardId, list[str]]:
        if 0 in shards:
            raise self.error
        return {number: [f"of-{number}"] for number in shards}


def loads_beside(
    error: Exception, begin: Callable[[Remembering], None], many: int
) -> tuple[set[str], set[str]]:
    """Return what was loaded and what was written when that number of entities is in memory."""

    async def scenario() -> tuple[set[str], set[str]]:
        region, journal, enough = Loads(), Picky(error), asyncio.Event()
        remembering = Remembering(1, journal, region, lambda entity: int(entity[3:]), lambda: 0.0)  # type: ignore[arg-type]

        def loads(_: str) -> None:
            if len(region.loaded) == many:
                enough.set()

        region.on_load = loads
        begin(remembering)
        async with asyncio.timeout(60 * SLACK):
            job = asyncio.create_task(remembering.run())
            await enough.wait()
        job.cancel()
        return set(region.loaded), journal.written

    return asyncio.run(scenario())


GOOD = {f"of-{number}" for number in range(1, 10)}


def start_all(remembering: Remembering) -> None:
    shard = Shard("shop.Cart", 0, 1, Resident)
    for each in ("bad", *sorted(GOOD)):
        slot = shard.start(each, 0.0)
        assert slot is not None
        remembering.started(slot)


def test_a_row_that_the_server_cannot_write_holds_up_no_other() -> None:
    """The server does not say that the row is to blame: it is tried again, and its entity waits."""
    error = JournalUnavailable("a trigger of the user's raises (P0001)", answered=True)
    assert loads_beside(error, start_all, len(GOOD)) == (GOOD, GOOD)


def test_of_rows_that_are_refused_together_the_good_ones_are_stored() -> None:
    """An entity whose own row is refused runs all the same."""
    refused = RowRefused("violates a constraint of the user's")
    assert loads_beside(refused, start_all, len(GOOD) + 1) == ({*GOOD, "bad"}, GOOD)


def test_a_shard_whose_rows_cannot_be_read_holds_up_no_other() -> None:
    def recall_all(remembering: Remembering) -> None:
        for number in range(10):
            remembering.recall(Shard("shop.Cart", number, 1, Resident))

    error = JournalUnavailable("could not read block 3 (XX001)", answered=True)
    assert loads_beside(error, recall_all, len(GOOD)) == (GOOD, set())


def test_a_shard_whose_rows_cannot_be_read_holds_up_no_start_in_another() -> None:
    def both(remembering: Remembering) -> None:
        remembering.recall(Shard("shop.Cart", 0, 1, Resident))
        slot = Shard("shop.Cart", 1, 1, Resident).start("of-1", 0.0)
        assert slot is not None
        remembering.started(slot)

    error = JournalUnavailable("could not read block 3 (XX001)", answered=True)
    assert loads_beside(error, both, 1) == ({"of-1"}, {"of-1"})


TURNS = 1000
"""Of the loop: more than the starts of a few entities take. None of them waits for a clock."""


class Loses(Rows):
    """Has lost all rows, and is read after that by `went_back`."""

    def __init__(self) -> None:
        super().__init__(lambda: None)
        self.on_write: Callable[[], None] = lambda: None

    async def remember(self, marks: Sequence[Mark]) -> None:
        await super().remember(marks)
        self.on_write()


def test_those_that_wait_for_their_turn_are_stored_again_too() -> None:
    """Their rows were read before the server lost them, and they start without another look."""

    async def scenario() -> set[str]:
        shard, region, rows = Shard("shop.Cart", 0, 1, Resident), Loads(), Loses()
        remembering = Remembering(
            1, rows, region, lambda entity: 0, lambda: 0.0, rate=(1, 0.01)  # type: ignore[arg-type]
        )  # fmt: skip
        stored = asyncio.Event()

        def loads(entity: str) -> None:
            if entity == "a":
                rows.running.clear()
                rows.on_write = stored.set
                remembering.went_back(shard, list(shard.slots))

        region.on_load = loads
        job = asyncio.create_task(remembering.run())
        remembering.recall(shard)
        await stored.wait()
        job.cancel()
        return rows.running

    assert asyncio.run(scenario()) == {"a", "b", "c", "d"}


def test_a_shard_that_is_to_be_read_again_is_read_after_the_read_under_way() -> None:
    async def scenario() -> list[str]:
        shard, region = Shard("shop.Cart", 0, 1, Resident), Loads()
        last = asyncio.Event()

        def meanwhile() -> None:
            if "e" not in rows.running:
                rows.running.add("e")
                remembering.went_back(shard, [])

        rows = Rows(meanwhile)
        remembering = Remembering(1, rows, region, lambda entity: 0, lambda: 0.0)  # type: ignore[arg-type]
        region.on_load = lambda entity: last.set() if entity == "e" else None
        job = asyncio.create_task(remembering.run())
        remembering.recall(shard)
        for _ in range(TURNS):
            if last.is_set():
                break
            await asyncio.sleep(0)
        job.cancel()
        return region.loaded

    assert asyncio.run(scenario()) == ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize("why", ["their shard has left", "they are here already"])
def test_those_that_need_no_start_take_no_turn_of_the_others(why: str) -> None:
    """At a constant rate a shard with many entities that moves away would hold up all others."""

    async def scenario() -> list[str]:
        gone, here, region = Shard("shop.Cart", 0, 1, Resident), Shard("shop.Cart", 1, 1, Resident), Loads()
        found = {0: [f"gone {number}" for number in range(3 * STARTED_AT_ONCE)], 1: ["a", "b", "c"]}

        class Both(Rows):
            async def recall(self, type_id: int, shards: Sequence[ShardId]) -> dict[ShardId, list[str]]:
                return found

        remembering = Remembering(
            1, Both(lambda: None), region, lambda entity: int(not entity.startswith("gone")), lambda: 0.0,  # type: ignore[arg-type]
            rate=(2, 3600.0),
        )  # fmt: skip
        two = asyncio.Event()
        region.on_load = lambda entity: two.set() if len(region.loaded) == 2 else None
        if why == "their shard has left":
            gone.stop()
        else:
            for entity in found[0]:
                gone.start(entity, 0.0)
        job = asyncio.create_task(remembering.run())
        remembering.recall(gone)
        remembering.recall(here)
        await asyncio.wait_for(two.wait(), 10.0 * SLACK)
        job.cancel()
        return region.loaded

    assert asyncio.run(scenario()) == ["a", "b"]


def test_a_great_number_of_starts_leaves_the_loop_to_others_in_between() -> None:
    async def scenario() -> int:
        shard, region = Shard("shop.Cart", 0, 1, Resident), Loads()
        rows = Rows(lambda: None)
        rows.running = {str(number) for number in range(5 * STARTED_AT_ONCE)}
        remembering = Remembering(1, rows, region, lambda entity: 0, lambda: 0.0)  # type: ignore[arg-type]
        last = asyncio.Event()
        region.on_load = lambda entity: last.set() if len(region.loaded) == len(rows.running) else None
        job = asyncio.create_task(remembering.run())
        remembering.recall(shard)
        turns = 0
        while not last.is_set():
            turns += bool(region.loaded)
            await asyncio.sleep(0)
        job.cancel()
        return turns

    assert asyncio.run(scenario()) >= 4
