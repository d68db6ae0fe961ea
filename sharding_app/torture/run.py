"""A whole run: rounds of mixed faults until its time is over or a promise is broken, and a
report.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median

import msgspec

from sharding_app.torture.mixed import Mixed
from sharding_app.torture.porcupine import Disagreement, check, opinion
from sharding_app.torture.processes import NotInTime
from sharding_app.torture.scenario import Broken, Report

STAGES_PER_ROUND = 6


class Totals(msgspec.Struct):
    """The figures of a run."""

    seed: int
    seconds: float = 0.0
    rounds: int = 0
    "Rounds that kept every promise."
    calls: int = 0
    events: int = 0
    payments: dict[str, int] = {}
    "Steps of payments and timers, by name."
    outcomes: dict[str, int] = {}
    faults: dict[str, int] = {}
    handled: int = 0
    "Messages that instances reported."
    successions: int = 0
    "Number of times that an object took over from another one."
    checked_by_porcupine: int = 0
    "Histories of entities that Porcupine has judged too."
    undecided_by_porcupine: int = 0
    """Histories that it gave up. Calls of unknown outcome may take effect at any moment: too many
    cases.
    """
    answered_ms: list[float] = []
    "For each stage: time from the undo of its faults until every shard answered."
    broken: str = ""

    def add(self, report: Report) -> None:
        self.rounds += 1
        self.calls += report.calls
        self.events += report.events
        for name, number in report.payments.items():
            self.payments[name] = self.payments.get(name, 0) + number
        for name, number in report.outcomes.items():
            self.outcomes[name] = self.outcomes.get(name, 0) + number

    def lines(self) -> list[str]:
        counts = ", ".join(f"{number:,} {name}" for name, number in sorted(self.outcomes.items()))
        faults = ", ".join(f"{number} {name}" for name, number in sorted(self.faults.items()))
        found = [
            f"{self.rounds} rounds kept every promise in {self.seconds / 60:.1f} minutes: "
            f"{self.calls:,} calls ({counts}), {self.events:,} events",
            f"instances: {self.handled:,} messages handled, {self.successions:,} objects took over from another",
            f"faults: {sum(self.faults.values())} ({faults})",
        ]
        if self.payments:
            steps = ", ".join(f"{number:,} {name}" for name, number in sorted(self.payments.items()))
            found.append(f"durable messages and timers: {steps}; each once, and the total is what was given")
        if self.answered_ms:
            found.append(
                f"after a stage's faults every shard answered within {median(self.answered_ms):,.0f} ms in the middle, "
                f"{max(self.answered_ms):,.0f} ms at most"
            )
        if self.checked_by_porcupine:
            found.append(
                f"Porcupine agrees on {self.checked_by_porcupine:,} histories of entities, "
                f"and could not decide {self.undecided_by_porcupine:,} in its time"
            )
        return found


def go_on(
    mixed: Mixed,
    seconds: float,
    say: Callable[[str], object],
    porcupine: Path | None = None,
    stages: int = STAGES_PER_ROUND,
) -> Totals:
    """Make rounds of that many stages for N seconds, or until a promise is broken (`broken`)."""
    run, began = mixed.run, time.monotonic()
    totals = Totals(run.cluster.seed)
    try:
        mixed.begin()
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            report = mixed.round(stages)
            if porcupine is not None:
                verdict = check(porcupine, run.calls(), run.place)
                totals.checked_by_porcupine += verdict.linearizable
                totals.undecided_by_porcupine += len(verdict.undecided)
            totals.add(report)
            say(report.lines()[0])
            run.new_round()
        run.passed = True
    except (Broken, NotInTime, Disagreement) as error:
        totals.broken = str(error)
        if porcupine is not None and isinstance(error, Broken):
            totals.broken += f"\n{opinion(porcupine, run.calls(), run.place)}"
    totals.seconds = time.monotonic() - began
    totals.faults = dict(Counter(mixed.counts))
    totals.handled, totals.successions = run.registry.handled, run.registry.successions
    totals.answered_ms = mixed.answered_ms
    return totals
