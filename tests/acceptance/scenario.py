"""A scenario of the fault tests: a cluster on servers of ours, and figures for the summary of the
session.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Sequence
from pathlib import Path

from sharding_app.torture import scenario
from sharding_app.torture.processes import Load
from sharding_app.torture.scenario import Fault, Report
from tests.acceptance.cluster import BUSY, Cluster, Servers

__all__ = ["REPORTS", "REPORT_FOLDER", "SECONDS", "Fault", "Report", "Scenario", "drawn"]

REPORT_FOLDER = "ACCEPTANCE_REPORT"
SECONDS = float(os.environ.get("ACCEPTANCE_SECONDS") or 0)
"""How long each scenario's load goes on before and after its faults, at least; nothing: as short as
CI wants it.
"""
RATE, ENTITIES = (300.0, 1000) if SECONDS else (200.0, 500)
"""Of the load, where a scenario does not depend on them: calls each second, and the entities that
they go to.
"""
REPORTS: list[Report] = []
"""Of this session, for its summary."""


def drawn(known: Sequence[str]) -> str:
    """Choose one for a short run, the same in every process of it."""
    return random.Random(f"{os.environ['ACCEPTANCE_DRAW']} {known}").choice(known)


class Scenario(scenario.Scenario[Cluster]):
    def __init__(
        self, servers: Servers, place: Path, seed: int, name: str, sharding: dict[str, object] | None = None
    ) -> None:
        super().__init__(Cluster(servers, place, seed, sharding), name)
        self.counts = True
        "Its figures belong into the summary."
        self.patience *= 2  # of callers; the machine may be doing other things

    def begin(
        self,
        *nodes: str,
        rate: float = RATE,
        entities: int = ENTITIES,
        roles: dict[str, str] | None = None,
        payments: float = 0.0,
    ) -> None:
        super().begin(*nodes, rate=rate, entities=entities, roles=roles, payments=payments)

    def go_on(self, seconds: float) -> None:
        super().go_on(max(seconds, SECONDS / 2))

    def wait_answers(
        self, at: float, shards: Iterable[int] | None = None, seconds: float = 15.0, of: Load | None = None
    ) -> None:
        super().wait_answers(at, shards, BUSY * seconds, of)

    def judged(self, report: Report) -> None:
        if self.counts:
            REPORTS.append(report)
        else:
            self.passed = True
