"""Runs of many seeds, spread over processes, and their summary."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from random import Random
from typing import get_args

from sharding_app.protocol.messages import AnyMessage
from sharding_app.testing.simulation.executed import Executed, Lines
from sharding_app.testing.simulation.faults import (
    ANSWER_KINDS,
    BLACK_HOLE,
    FORGOTTEN,
    JOURNAL_KINDS,
    KINDS,
    PROTOCOL_KINDS,
    STRANGERS,
)
from sharding_app.testing.simulation.machines import EXPECTED
from sharding_app.testing.simulation.trace import Coverage
from sharding_app.testing.simulation.world import run_seed

UNSAID = frozenset(
    "GetShardRegionState ShardRegionState GracefulShutdownReq GetNodeStats NodeStats OperatorRequest OperatorReply GetEntities"
    " Entities GetNodeTrend NodeTrend NoHome".split()
)
"""Messages that no fault and no command of the simulated workload leads to.

They are operators' questions and requests, and the answer about a type that no node hosts. Their
tests are in tests/unit/protocol and tests/unit/runtime.
"""


@dataclass(frozen=True, slots=True)
class Job:
    seed: int
    nodes: int
    steps: int | None = None
    looks_at_lines: bool = False
    direct: bool = False
    stormy: bool = False


@dataclass(frozen=True, slots=True)
class SeedResult:
    """The result of one seed for a report, small enough to come back from another process."""

    seed: int
    nodes: int
    broken: str | None
    promise: int | None
    trace: list[str]
    faults: int
    steps: int
    commands: int
    coverage: Coverage
    lines: Lines
    """Lines executed by this seed, or by one before it in the same process; empty if they are not
    watched.
    """


@dataclass(slots=True)
class Summary:
    seeds: int = 0
    steps: int = 0
    commands: int = 0
    failed: list[SeedResult] = field(default_factory=list)
    coverage: Coverage = field(default_factory=Coverage)
    lines: Lines = field(default_factory=dict)

    def add(self, result: SeedResult) -> None:
        self.seeds += 1
        self.steps += result.steps
        self.commands += result.commands
        self.coverage.add(result.coverage)
        for file, lines in result.lines.items():
            self.lines.setdefault(file, set()).update(lines)
        if result.broken is not None:
            self.failed.append(result)

    def never_happened(self) -> list[str]:
        """Return faults, messages and transitions that no seed has shown."""
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
        faults += [
            f"fault {kind.name} of a journal"
            for kind in JOURNAL_KINDS
            if not self.coverage.faults[f"{kind.name} of a journal"]
        ]
        said = [f"message {name}" for name in message_names() if not self.coverage.messages[name]]
        moves = [
            f"transition of {machine}: {before} to {after}"
            for machine, before, after in sorted(EXPECTED)
            if not self.coverage.transitions[machine, before, after]
        ]
        return faults + said + moves


def message_names() -> list[str]:
    """Return the messages that a workload with faults must lead to."""
    return sorted(each.__name__ for each in get_args(AnyMessage) if each.__name__ not in UNSAID)


_executed = Executed()
"""Lines that this process has executed."""


def is_direct(seed: int) -> bool:
    """Whether the processes of a seed talk over direct connections. Half of all seeds do."""
    return Random(f"links {seed}").random() < 0.5


def run(job: Job) -> SeedResult:
    """Run one seed."""
    with _executed.watching() if job.looks_at_lines else nullcontext():
        return _run(job)


def run_all(jobs: Iterable[Job], processes: int) -> Iterator[SeedResult]:
    """Run jobs. With several processes the results come as they are done."""
    if processes <= 1:
        yield from map(run, jobs)
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(run, jobs, chunksize=2)


def _run(job: Job) -> SeedResult:
    outcome = run_seed(job.seed, nodes=job.nodes, steps=job.steps, direct=job.direct, stormy=job.stormy)
    broken = outcome.broken
    return SeedResult(
        job.seed, job.nodes, None if broken is None else str(broken), None if broken is None else broken.promise,
        outcome.trace if broken is not None else [], len(outcome.faults), outcome.steps, outcome.commands,
        outcome.coverage, _executed.lines if job.looks_at_lines else {},
    )  # fmt: skip
