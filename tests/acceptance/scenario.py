"""A scenario of the fault tests: a cluster on servers of ours, and figures for the summary of the
session.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from sharding_app.torture import scenario
from sharding_app.torture.processes import NotInTime, until
from sharding_app.torture.scenario import SETTLE_SECONDS, Fault, Report
from tests.acceptance.cluster import Cluster, Servers
from tests.acceptance.summed.sums import ROLE, TABLE, Look, check_sums, look

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
        self.projects = False
        self.projected = 0
        "Events in the projection's table, so far."

    def begin(
        self,
        *nodes: str,
        rate: float = RATE,
        entities: int = ENTITIES,
        roles: dict[str, str] | None = None,
        payments: float = 0.0,
    ) -> None:
        super().begin(*nodes, rate=rate, entities=entities, roles=roles, payments=payments)

    def project(self) -> None:
        """Let the nodes that are started from now on sum up the accounts in a projection; each
        round compares its table with the journal.
        """
        self.projects = True
        self.cluster.more["ACCEPTANCE_APPS"] = "tests.acceptance.summed"
        self.cluster.spared_role = ROLE
        self.cluster.sql(TABLE)

    def judge_more(self) -> list[str]:
        """Judge the projection, once it has caught up."""
        if not self.projects:
            return []

        found: list[Look] = []

        def caught_up() -> bool:
            cluster = self.cluster
            found[:] = [look(cluster.database_url, cluster.accounts, [*cluster.journal_urls.values()])]
            return found[0].caught_up and (not cluster.journal_urls or found[0].is_equal)

        began = time.monotonic()
        with suppress(NotInTime):
            until(caught_up, SETTLE_SECONDS, "the projection has caught up", 0.5)
        if not found:
            return ["promise 17: the projection's table could not be read"]
        self.report.figures["seconds until the projection had caught up"] = time.monotonic() - began
        self.projected = sum(each.events for each in found[0].projected)
        self.report.figures["events that the projection has summed up, so far"] = self.projected
        return check_sums(found[0])

    def go_on(self, seconds: float) -> None:
        super().go_on(max(seconds, SECONDS / 2))

    def judged(self, report: Report) -> None:
        if self.counts:
            REPORTS.append(report)
        else:
            self.passed = True
