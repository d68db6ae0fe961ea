"""Commits wake the worker of the entity's part: one wake-up at a time, a pause before the next, and
none is forgotten.
"""

import asyncio
from typing import Any

from sharding_app.entities.projections import projections
from sharding_app.entities.registry import registry
from sharding_app.protocol.call import Call
from sharding_app.protocol.projection.slices import part_of, slice_of
from sharding_app.runtime.projections.waking import PAUSE_SECONDS, Waking
from sharding_app.runtime.projections.worker import declare_workers, workers_of
from tests.support.given import event_row
from tests.unit.runtime.projections.test_worker import declared
from tests.unit.runtime.virtual_time import VirtualLoop


def test_wake_ups_are_joined_and_follow_the_number_of_workers() -> None:
    async def main() -> None:
        asked: list[tuple[Call, asyncio.Future[bytes]]] = []

        def ask(call: Call) -> "asyncio.Future[bytes]":
            future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
            asked.append((call, future))
            return future

        async def answer(value: int) -> None:
            handler = registry.get(workers_of(projection)).handler("wake")
            asked[-1][1].set_result(handler.encode_result(value))
            await asyncio.sleep(0)

        async def rest() -> None:
            await asyncio.sleep(2 * PAUSE_SECONDS)

        on_commit: list[Any] = []
        waking = Waking([projection], ask, on_commit)
        assert not on_commit, "a node without a followed type pays nothing"
        waking.host(projection.sources[0], 7)
        (committed,) = on_commit
        first, second = "a", "b"
        assert part_of(slice_of(first), 4) != part_of(slice_of(second), 4)
        committed([event_row(8, first, 1)])
        assert not asked, "of another type"
        for number in range(1, 4):
            committed([event_row(7, first, number)])
        assert [call.entity for call, _ in asked] == [str(part_of(slice_of(first), 4))]
        await answer(4)
        committed([event_row(7, first, 4)])
        assert len(asked) == 1, "a stream of commits costs a wake-up now and then"
        await rest()
        assert len(asked) == 2, "one more, for those in between"
        await answer(4)
        await rest()
        assert len(asked) == 2
        committed([event_row(7, first, 5), event_row(7, second, 1)])
        assert [call.entity for call, _ in asked[2:]] == [str(part_of(slice_of(each), 4)) for each in "ab"]
        await answer(1)
        assert asked[-1][0].entity == "0", "there is one worker by now, and the commit may be its"
        asked[2][1].set_exception(TimeoutError())
        await asyncio.sleep(0)
        await answer(1)
        await rest()
        assert [call.entity for call, _ in asked[4:]] == ["0", "0"], (
            "an unknown worker's commit may be its too"
        )
        count = len(asked)
        await answer(3)
        await rest()
        woken = sorted(call.entity for call, _ in asked[count:])
        assert woken == ["0", "1", "2"], "what was committed may be any worker's"

    projection = declared()
    with registry.isolated(), projections.isolated():
        declare_workers([projection])
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(main())
