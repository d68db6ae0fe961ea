"""Many seeds, spread over processes, and what they showed together."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import get_args

from sharding_app.core.messages import AnyMessage
from sharding_app.simulation.faults import (
    ANSWER_KINDS,
    BLACK_HOLE,
    FORGOTTEN,
    KINDS,
    PROTOCOL_KINDS,
    STRANGERS,
)
from sharding_app.simulation.machines import EXPECTED
from sharding_app.simulation.planted import planted
from sharding_app.simulation.trace import Coverage
from sharding_app.simulation.world import run_seed

UNSAID = frozenset(
    "GetShardRegionState ShardRegionState GracefulShutdownReq GetNodeStats NodeStats Steer Steered GetEntities"
    " Entities NoHome".split()
)
"""Messages that no fault and no command of the simulated workload leads to: operators' questions and wishes, and the answer
about a type that nobody hosts. Their tests are tests/protocol, tests/admin and tests/core."""


@dataclass(frozen=True, slots=True)
class Job:
    seed: int
    nodes: int
    steps: int | None = None
    mistake: str = ""


@dataclass(frozen=True, slots=True)
class SeedResult:
    """Of one seed: what a report needs, small enough to come back from another process."""

    seed: int
    nodes: int
    broken: str | None
    promise: int | None
    trace: list[str]
    faults: int
    steps: int
    commands: int
    coverage: Coverage


@dataclass(slots=True)
class Summary:
    seeds: int = 0
    steps: int = 0
    commands: int = 0
    failed: list[SeedResult] = field(default_factory=list)
    coverage: Coverage = field(default_factory=Coverage)

    def add(self, result: SeedResult) -> None:
        self.seeds += 1
        self.steps += result.steps
        self.commands += result.commands
        self.coverage.add(result.coverage)
        if result.broken is not None:
            self.failed.append(result)

    def never_happened(self) -> list[str]:
        """Faults, messages and transitions that no seed has shown."""
        faults = [
            f"fault {name}"
            for name in (
                *(kind.name for kind in (*KINDS, *PROTOCOL_KINDS, *ANSWER_KINDS)),
                BLACK_HOLE,
                FORGOTTEN,
                STRANGERS,
            )
            if not self.coverage.faults[name]
        ]
        said = [f"message {name}" for name in message_names() if not self.coverage.messages[name]]
        moves = [
            f"transition of {machine}: {before} to {after}"
            for machine, before, after in sorted(EXPECTED)
            if not self.coverage.transitions[machine, before, after]
        ]
        return faults + said + moves


def message_names() -> list[str]:
    """The messages that a workload with faults must have led to."""
    return sorted(each.__name__ for each in get_args(AnyMessage) if each.__name__ not in UNSAID)


def run(job: Job) -> SeedResult:
    """Run one seed, with a mistake planted if the job names one."""
    if job.mistake:
        with planted(job.mistake):
            return _run(job)
    return _run(job)


def run_all(jobs: Iterable[Job], processes: int) -> Iterator[SeedResult]:
    """Run jobs; with several processes the results come in the order in which they are done."""
    if processes <= 1:
        yield from map(run, jobs)
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(run, jobs, chunksize=2)


def _run(job: Job) -> SeedResult:
    outcome = run_seed(job.seed, nodes=job.nodes, steps=job.steps)
    broken = outcome.broken
    return SeedResult(
        job.seed, job.nodes, None if broken is None else str(broken), None if broken is None else broken.promise,
        outcome.trace if broken is not None else [], len(outcome.faults), outcome.steps, outcome.commands,
        outcome.coverage,
    )  # fmt: skip
