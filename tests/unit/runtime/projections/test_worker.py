"""The work of a part: turns while there is something to do, then a wait for a commit or a poll."""

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from sharding_app import EventSourced, Projection, applies, event, on
from sharding_app.entities.happened import Happened
from sharding_app.entities.projections import ProjectionType, projections
from sharding_app.entities.registry import registry
from sharding_app.errors import ProjectionError
from sharding_app.ports.projections import HandlerFailed, NotReady, Refused
from sharding_app.protocol.projection.turn import Outcome
from sharding_app.runtime.projections.worker import (
    POLL_SECONDS,
    REFUSED_SECONDS,
    Making,
    PartWorker,
    Work,
    set_parts,
)
from sharding_app.testing.clock import TravelLoop
from tests.support.steady_loop import SteadyLoop


def declared() -> ProjectionType:
    with registry.isolated(), projections.isolated():

        @event
        class Done: ...

        class Job(EventSourced, name="worker_test.Job"):
            @applies(Done)
            def on_done(self, happened: Done) -> None: ...

        class Jobs(Projection, name="worker_test.Jobs"):
            source = Job

            @on(Done)
            def done(self, happened: Happened[Done]) -> None: ...

        found = Jobs._sharding_projection
        assert found is not None
        return found


class Scripted:
    """A part whose turns end as they are told to; afterwards there is nothing to do."""

    def __init__(self, *ends: Outcome | Exception) -> None:
        self.ends = list(ends)
        self.turns: list[tuple[float, bool]] = []
        "When each began, and whether it was a careful one."
        self.tidied = 0
        self.closed = False

    async def turn(self, part: int, parts: int, *, careful: bool) -> Outcome:
        self.turns.append((asyncio.get_running_loop().time(), careful))
        end = self.ends.pop(0) if self.ends else Outcome()
        if isinstance(end, Exception):
            raise end
        return end

    async def tidy(self) -> None:
        self.tidied += 1

    async def close(self) -> None:
        self.closed = True


def run(part: Scripted, seconds: float, beside: Callable[[Work], Any] = lambda _: None) -> list[float]:
    """Let a worker work for some virtual seconds; return when its turns have begun."""

    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, TravelLoop)
        begun = loop.time()
        work = Work(declared(), part, 0, 4)
        task = asyncio.ensure_future(work.run())
        beside(work)
        await loop.travel(seconds)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert part.closed
        return [at - begun for at, _ in part.turns]

    with asyncio.Runner(loop_factory=SteadyLoop) as runner:
        return runner.run(main())


def test_it_goes_on_at_once_while_there_is_more_and_then_polls() -> None:
    part = Scripted(Outcome(5, more=True), Outcome(5, more=True))
    begun = run(part, 2.5 * POLL_SECONDS)
    assert len(begun) >= 5
    assert begun[2] < POLL_SECONDS <= begun[3] <= begun[4] - POLL_SECONDS
    assert part.tidied == 1


def test_a_commit_wakes_it() -> None:
    def wake(work: Work) -> None:
        asyncio.get_running_loop().call_later(0.5, work.woken.set)

    assert 0.5 <= run(Scripted(), 1.0, wake)[1] < POLL_SECONDS


def wake_often(work: Work) -> None:
    """Commit ten times a second."""
    for number in range(1, 100):
        asyncio.get_running_loop().call_later(number / 10, work.woken.set)


def test_a_resumed_one_goes_on_within_its_poll() -> None:
    for beside in (lambda _: None, wake_often):
        begun = run(Scripted(Outcome(paused=True), Outcome(paused=True)), 2.5 * POLL_SECONDS, beside)
        pauses = [later - earlier for earlier, later in pairwise(begun[:3])]
        assert all(POLL_SECONDS <= each < 1.5 * POLL_SECONDS for each in pauses), pauses


def test_commits_do_not_hurry_a_turn_that_fails_again_and_again() -> None:
    begun = run(Scripted(*[HandlerFailed("no")] * 100), 8.0, wake_often)
    assert len(begun) <= 8


class CommittedDuringTheFirst(Scripted):
    """Something is committed after its first turn has read."""

    work: Work | None = None

    async def turn(self, part: int, parts: int, *, careful: bool) -> Outcome:
        outcome = await super().turn(part, parts, careful=careful)
        if len(self.turns) == 1 and self.work is not None:
            self.work.woken.set()
        return outcome


def test_a_wake_up_during_a_turn_is_not_lost() -> None:
    part = CommittedDuringTheFirst()

    def beside(work: Work) -> None:
        part.work = work

    assert run(part, 1.0, beside)[1] < POLL_SECONDS


def test_after_a_failure_it_is_careful_for_a_while() -> None:
    part = Scripted(HandlerFailed("no"), Outcome(1, more=True, failed=1), *[Outcome(1, more=True)] * 30)
    run(part, 1.0)
    careful = [careful for _, careful in part.turns]
    assert careful[:2] == [False, True]
    assert careful[2:22] == [True] * 20
    assert not careful[25]


def test_it_waits_ever_longer_for_a_database_that_is_away() -> None:
    part = Scripted(*[NotReady("away")] * 4)
    begun = run(part, 4.0)
    pauses = [later - earlier for earlier, later in pairwise(begun)]
    assert all(pause >= least for pause, least in zip(pauses, (0.2, 0.4, 0.8, 1.6), strict=False))
    assert len(begun) >= 5


def test_each_journal_has_turns_of_its_own() -> None:
    """One that is away is tried ever more slowly, and holds up no other."""
    made = {"": Scripted(), "second": Scripted(*[NotReady("away")] * 100)}
    worker = type("JobsWorker", (PartWorker,), {"projection": declared(), "number": 0, "workers": 1})()
    former = set_parts(Making(lambda _, journal: made[journal], tuple(made)))

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, TravelLoop)
        task = asyncio.ensure_future(worker.run())
        for _ in range(20):
            await loop.travel(0.3)
            for each in worker._works:
                each.woken.set()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    try:
        with asyncio.Runner(loop_factory=SteadyLoop) as runner:
            runner.run(main())
    finally:
        set_parts(former)
    assert len(made[""].turns) >= 20
    assert 4 <= len(made["second"].turns) <= 8
    assert made[""].closed
    assert made["second"].closed


def test_what_an_operator_has_to_set_right_is_tried_slowly() -> None:
    for error in (ProjectionError("another server"), Refused("it has lost transactions")):
        assert run(Scripted(error), 12.0)[1] >= REFUSED_SECONDS
