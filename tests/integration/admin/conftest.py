"""Rows of a small cluster, and people with various permissions. No node runs, and none is asked for
its figures over time.
"""

import pytest

from sharding_app.dashboard.pages import charts
from sharding_app.operations.trends import TrendCollector
from tests.support.answering_nodes import HandClock
from tests.support.cluster_rows import person, root, rows
from tests.support.trends import FakeTrends

__all__ = ["person", "root", "rows"]


@pytest.fixture(autouse=True)
def asks_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it a page of a type starts a process of the cluster, with sessions that outlive the
    test.
    """
    monkeypatch.setattr(charts, "trends", TrendCollector(FakeTrends(), HandClock()))
