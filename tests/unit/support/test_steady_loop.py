"""The loop of the unit tests knows its own sleep from a time without a processor."""

import asyncio
import time

from tests.support.steady_loop import SteadyLoop


def test_a_stalled_process_costs_the_loop_no_time() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        fired: list[float] = []
        began, really = loop.time(), time.monotonic()
        timer = loop.call_later(60.0, fired.append, 0.0)
        time.sleep(0.5)  # noqa: ASYNC251  (as a process that gets no processor)
        await asyncio.sleep(0)
        assert loop.time() - began < 0.3
        await asyncio.sleep(0.2)
        assert loop.time() - began >= 0.2
        assert time.monotonic() - really >= 0.7, "it has slept"
        assert not fired
        timer.cancel()

    with asyncio.Runner(loop_factory=SteadyLoop) as runner:
        runner.run(main())


def test_time_that_is_skipped_passes() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SteadyLoop)
        began = loop.time()
        await loop.travel(3600.0)
        await loop.hurry(asyncio.sleep(3600.0))
        assert loop.time() - began >= 7200.0

    with asyncio.Runner(loop_factory=SteadyLoop) as runner:
        runner.run(main())
