"""A filter of the project's that raises costs no call its answer."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

import sharding_app
from sharding_app import EntityFailed, EventSourced, command, query
from sharding_app.settings.steady_logs import NAMES
from sharding_app.testing import ClusterThread


class Failing(EventSourced, name="tests.steady_logs.Failing"):
    @query
    def well(self) -> int:
        return 1

    @command
    def bad(self) -> int:
        raise ValueError("x")


def raises(record: logging.LogRecord) -> bool:
    raise RuntimeError("the project's filter")


def test_a_filter_that_raises_costs_no_answer(
    sharding_cluster: ClusterThread, capsys: pytest.CaptureFixture[str]
) -> None:
    logger = logging.getLogger("sharding.entity")
    logger.addFilter(raises)
    try:
        with pytest.raises(EntityFailed):
            Failing.ref("a", timeout=10.0).sync.bad()
    finally:
        logger.removeFilter(raises)
    assert Failing.ref("a", timeout=10.0).sync.well() == 1
    assert Failing.ref("b", timeout=10.0).sync.well() == 1
    assert "the project's filter" in capsys.readouterr().err


def test_all_loggers_of_the_engine_are_steady() -> None:
    folder = Path(sharding_app.__file__).parent
    text = "".join(each.read_text() for each in folder.rglob("*.py"))
    assert set(re.findall(r'getLogger\("(sharding\.[^"]+)"\)', text)) == set(NAMES)
