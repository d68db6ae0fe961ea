"""Faults that meet a node which another fault has ended."""

import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sharding_app.torture import faults
from sharding_app.torture.faults import Made, Stage
from sharding_app.torture.processes import Node

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of other processes are Linux's")


@pytest.mark.parametrize("fault", [faults.no_descriptors, faults.no_memory])
def test_a_node_that_has_ended_has_no_limits(fault: Callable[[Stage], Made], tmp_path: Path) -> None:
    node = Node("n1", [sys.executable, "-c", "pass"], dict(os.environ), tmp_path / "log")
    node.child.wait()
    cluster = SimpleNamespace(nodes={"n1": node}, chance=random.Random(1), proxies={})
    load = SimpleNamespace(order=lambda order: order)
    stage = Stage(cast(Any, SimpleNamespace(cluster=cluster, load=load)), ("n1",), set())
    try:
        fault(stage).undo()
    finally:
        node.end()
    assert stage.starved == {"n1"}
