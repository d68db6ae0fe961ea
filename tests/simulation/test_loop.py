"""The virtual event loop: asyncio as we know it, on seeded time, in processes that stop, go on and
die.
"""

import asyncio
import gc
from collections.abc import Callable, Coroutine
from itertools import pairwise
from typing import Any

import pytest

from sharding_app.testing.simulation.loop import Life, Process, SimLoop
from sharding_app.testing.simulation.scheduler import Scheduler
from tests.simulation.hash_seeds import outputs

HISTORY = """
from tests.simulation.test_loop import history
print(history(7))
"""


def one() -> tuple[Scheduler, Process, SimLoop]:
    scheduler = Scheduler(1)
    process = Process(scheduler, "one")
    return scheduler, process, SimLoop(process)


async def everything(log: list[object], chance: Callable[[], float]) -> None:
    """Use what the runtime uses of asyncio, and some more."""
    queue: asyncio.Queue[int] = asyncio.Queue(2)

    async def produce() -> None:
        for number in range(20):
            await asyncio.sleep(0.01 * chance())
            await queue.put(number)

    async with asyncio.TaskGroup() as group:
        group.create_task(produce())
        log.extend([await queue.get() for _ in range(20)])
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await asyncio.Event().wait()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.sleep(10), 1)
    log.append(await asyncio.gather(*(asyncio.sleep(0.1, number) for number in range(5))))
    log.append(await asyncio.to_thread(lambda: "inline"))
    waits = {asyncio.create_task(asyncio.sleep(0.1 * number, number)) for number in range(1, 4)}
    done, pending = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    log.append([task.result() for task in done])
    for task in pending:
        task.cancel()
        task.add_done_callback(lambda ended: log.append(ended.cancelled()))
    await asyncio.sleep(0.001)
    async with asyncio.Lock(), asyncio.Semaphore(1):
        log.append("locked")
    assert asyncio.current_task() is not None
    assert asyncio.get_running_loop().is_running()


def history(seed: int) -> tuple[list[object], int, int]:
    """Run three processes through it, one of them paused for a while, one crashed; return what
    happened.
    """
    scheduler = Scheduler(seed)
    log: list[object] = []
    processes = [Process(scheduler, f"p{n}", rate=1 + n / 100, offset=100.0 * n) for n in range(3)]
    for process in processes:
        SimLoop(process).create_task(everything(log, scheduler.random.random))
    scheduler.later(0.05, processes[1].pause)
    scheduler.later(0.9, processes[1].resume)
    scheduler.later(0.6, processes[2].crash)
    scheduler.run(deadline=20)
    result = list(log), scheduler.digest, scheduler.turns
    scheduler.close()
    return result


def test_asyncio_works_on_it() -> None:
    scheduler, _, loop = one()
    log: list[object] = []
    loop.run_until_complete(everything(log, scheduler.random.random))
    assert log == [*range(20), [0, 1, 2, 3, 4], "inline", [1], True, True, "locked"]
    assert 1.5 < scheduler.now < 3


def test_one_seed_gives_one_history() -> None:
    assert history(7) == history(7)
    assert history(7)[1] != history(8)[1]


def test_the_history_does_not_depend_on_the_hash_seed() -> None:
    assert len(outputs(HISTORY)) == 1


def test_a_paused_process_waits_and_its_clock_goes_on() -> None:
    scheduler, process, loop = one()
    seen: list[float] = []

    async def tick() -> None:
        while True:
            seen.append(loop.time())
            await asyncio.sleep(0.1)

    loop.create_task(tick())
    scheduler.later(1, process.pause)
    scheduler.later(3, process.resume)
    scheduler.run(deadline=4)
    gaps = [after - before for before, after in pairwise(seen)]
    assert 1.9 < max(gaps) < 2.2
    assert sorted(gaps)[-2] < 0.11
    scheduler.close()


def test_beside_a_blocked_loop_another_one_turns() -> None:
    scheduler, process, loop = one()
    seen: dict[SimLoop, list[float]] = {loop: [], SimLoop(process): []}

    async def tick(each: SimLoop) -> None:
        while True:
            seen[each].append(scheduler.now)
            await asyncio.sleep(0.1)

    for each in seen:
        each.create_task(tick(each))
    scheduler.later(1, process.block)
    scheduler.later(2, process.pause)
    scheduler.later(3, process.unblock)
    scheduler.later(4, process.resume)
    awake: list[float] = []
    for at in (0.5, 1.2, 1.9, 3.5, 5):
        scheduler.later(at, lambda: awake.append(process.awake))
    scheduler.run(deadline=6)
    blocked, beside = seen.values()
    assert not [at for at in blocked if 1 < at < 4]
    assert [at for at in beside if 1 < at < 2]
    assert not [at for at in beside if 2 < at < 4]
    assert min(blocked[-1], beside[-1]) > 5.8
    assert awake == [0.5, 1.0, 1.0, 1.0, 2.0], "while it stands it is the same number to the last bit"
    scheduler.close()


def test_nothing_of_a_crashed_process_runs_again_until_the_world_ends() -> None:
    scheduler, process, loop = one()
    log: list[str] = []

    async def live() -> None:
        try:
            await asyncio.sleep(5)
        finally:
            log.append("finally")

    task = loop.create_task(live())
    scheduler.later(1, process.crash)
    scheduler.run(deadline=10)
    assert log == []
    assert not task.done()
    loop.call_soon(log.append, "after death")
    scheduler.run(deadline=11)
    assert log == []
    scheduler.close()
    assert log == ["finally"]
    assert task.cancelled()
    assert process.life is Life.CRASHED


def test_a_loop_that_ends_late_may_hand_work_to_one_that_has_ended(
    recwarn: pytest.WarningsRecorder,
) -> None:
    scheduler = Scheduler(0)
    process = Process(scheduler, "n1")
    first, second = SimLoop(process), SimLoop(process)
    begun: list[str] = []

    async def handed_over() -> None:
        begun.append("never")

    async def last_words() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            first.create_task(handed_over())

    second.create_task(last_words())
    scheduler.run(deadline=1.0)
    scheduler.close()
    gc.collect()
    assert begun == []
    assert [str(each.message) for each in recwarn] == []


def test_work_that_an_abandoned_task_hands_over_at_its_end_never_begins(
    recwarn: pytest.WarningsRecorder,
) -> None:
    """Its process has crashed when it was about to go on, so nothing wakes it, and it is closed."""
    scheduler, process, loop = one()
    begun: list[str] = []

    async def handed_over() -> None:
        begun.append("handed over")

    async def waits(wake: asyncio.Future[None]) -> None:
        try:
            await wake
        finally:
            loop.create_task(handed_over())

    wake: asyncio.Future[None] = loop.create_future()
    loop.create_task(waits(wake))
    scheduler.run(deadline=1.0)
    process.crash()
    wake.set_result(None)
    scheduler.close()
    gc.collect()
    assert begun == []
    assert [str(each.message) for each in recwarn] == []


@pytest.mark.parametrize("rate", [0.95, 1.05])
def test_clocks_may_drift(rate: float) -> None:
    scheduler = Scheduler(1)
    loop = SimLoop(Process(scheduler, "drifting", rate=rate, offset=50.0))

    async def sleep() -> None:
        before = loop.time()
        await asyncio.sleep(10)
        assert 10 <= loop.time() - before < 10.01

    loop.run_until_complete(sleep())
    assert abs(scheduler.now - 10 / rate) < 0.01


def test_a_spinning_coroutine_does_not_stop_time() -> None:
    _, _, loop = one()

    async def spin() -> int:
        turns = 0
        while loop.time() < 0.1:
            turns += 1
            await asyncio.sleep(0)
        return turns

    assert 100 < loop.run_until_complete(spin()) < 10_000


def test_an_error_that_no_task_takes_is_reported() -> None:
    scheduler, _, loop = one()
    reported: list[object] = []
    scheduler.on_error = lambda _, context: reported.append(context["exception"])
    loop.call_soon(lambda: 1 / 0)
    scheduler.run(deadline=1)
    assert [type(error) for error in reported] == [ZeroDivisionError]


def test_it_runs_inside_a_real_loop() -> None:
    async def outer() -> asyncio.AbstractEventLoop:
        _, _, loop = one()

        async def inner() -> asyncio.AbstractEventLoop:
            await asyncio.sleep(1)
            return asyncio.get_running_loop()

        found = loop.run_until_complete(inner())
        assert found is loop
        await asyncio.sleep(0)
        return asyncio.get_running_loop()

    runner: Callable[[Coroutine[Any, Any, asyncio.AbstractEventLoop]], asyncio.AbstractEventLoop] = (
        asyncio.run
    )
    assert not isinstance(runner(outer()), SimLoop)


def test_clock_rates_stay_within_what_is_assumed() -> None:
    with pytest.raises(ValueError, match="less than 10 %"):
        Process(Scheduler(), "mad", rate=1.2)


def test_a_callback_that_repeats_without_a_pause_is_told() -> None:
    scheduler = Scheduler(1)
    loop = SimLoop(Process(scheduler, "a"))
    told: list[str] = []
    scheduler.on_spin = lambda _, callback: told.append(callback)

    def again() -> None:
        loop.call_later(0.0, again)

    def now_and_then() -> None:
        loop.call_later(0.001, now_and_then)

    loop.call_soon(now_and_then)
    scheduler.run(deadline=1.0)
    assert told == []
    loop.call_soon(again)
    scheduler.run(deadline=2.0)
    assert set(told) == {"test_a_callback_that_repeats_without_a_pause_is_told.<locals>.again"}
