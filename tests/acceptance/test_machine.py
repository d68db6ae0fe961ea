"""What runs out, and what the machine does: memory, descriptors, a blocked loop, a loop that hangs;
clocks that step, a full disk, a cable.
"""

from __future__ import annotations

import time

import pytest

from sharding_app.torture.faults import Made, Stage, no_descriptors, no_memory
from sharding_app.torture.processes import until
from tests.acceptance import faults
from tests.acceptance.conftest import NewScenario
from tests.acceptance.machine import clock_library, may_mount, may_wire
from tests.acceptance.plots import wait_again
from tests.acceptance.scenario import Scenario
from tests.support.slack import STEADY

pytestmark = pytest.mark.acceptance

NODES = ("a", "b", "c")


def test_a_node_is_blocked_and_runs_short_of_memory_and_of_descriptors(scenario: NewScenario) -> None:
    run = scenario()
    cluster = run.cluster
    for server in ("postgres", "redis"):
        cluster.proxy("b", server)
    run.begin(*NODES)
    stage = Stage(run, ("b",), set())
    epochs, incarnations = cluster.epochs(), cluster.members()
    entity = next(each for each in reversed(run.names()) if run.shard(each) in cluster.shards_of("b"))
    run.load.order(f"stall {entity} 2.5")
    at = time.monotonic()
    run.fault("a handler blocks b for 2.5 s", at, [run.shard(entity)])
    run.wait_answers(at)
    assert cluster.members() == incarnations, "its lifeline has a thread of its own"
    assert cluster.epochs() == epochs, "a handler that blocks moves nothing"
    for fault in (no_memory, no_descriptors):
        _make(run, fault(stage), "b", 1.0)
        _heals(run)
    run.finish()


def test_a_loop_that_stands_still_for_good_ends_its_process(scenario: NewScenario) -> None:
    run = scenario(faults.STALLS)
    cluster = run.cluster
    run.begin(*NODES)
    pid = cluster.nodes["b"].pid
    _make(run, faults.hang(Stage(run, ("b",), set())), "b", 1.0)
    assert cluster.nodes["b"].pid != pid
    log = cluster.nodes["b"].log.read_text()
    assert "this process is ended" in log
    assert "in _stand_still" in log
    _heals(run)
    run.finish()


@pytest.mark.skipif(not clock_library(), reason="libfaketime is not installed")
def test_clocks_step(scenario: NewScenario) -> None:
    run = scenario({**STEADY})
    cluster = run.cluster
    cluster.clock("a")
    cluster.clock("b")
    run.begin(*NODES)
    epochs, incarnations = cluster.epochs(), cluster.members()
    for name, clock in cluster.clocks.items():
        for seconds in (3_600, -3_600):
            clock.step(seconds)
            run.fault(f"the clock of {name} steps by {seconds} s", time.monotonic(), cluster.shards_of(name))
            # The library looks at its file once a second.
            run.go_on(1.1)
    assert cluster.members() == incarnations
    assert cluster.epochs() == epochs, "no wall clock decides anything"
    _heals(run)
    run.finish()


@pytest.mark.skipif(not may_mount(), reason="this user may not mount a small disk")
def test_the_disk_is_full(scenario: NewScenario) -> None:
    run = scenario()
    run.begin(*NODES)
    _make(run, faults.fill_disk(Stage(run, NODES, set())), "", 1.5)
    _heals(run)
    run.finish()


@pytest.mark.skipif(not may_wire(), reason="this user may not make network namespaces")
def test_a_cable_is_pulled(scenario: NewScenario) -> None:
    run = scenario()
    cluster = run.cluster
    cluster.wired = "c"
    run.begin(*NODES)
    shards, age = cluster.shards_of("c"), cluster.sql("SELECT max(age) FROM sharding_node")[0][0]
    made = faults.unplug(Stage(run, NODES, set()))
    run.fault(made.what, time.monotonic(), shards)
    cluster.wait_moved("c", 15)
    made.undo()
    wait_again(run, "c", age)
    _heals(run)
    run.finish()


def _make(run: Scenario, made: Made, name: str, seconds: float) -> None:
    """Let a fault last for that time; name the node that it is about, if it is about one."""
    cluster = run.cluster
    run.fault(made.what, time.monotonic(), cluster.shards_of(name) if name else cluster.epochs())
    run.go_on(seconds)
    made.undo()
    run.fault(f"undone: {made.what}", time.monotonic(), ())


def _heals(run: Scenario) -> None:
    for name in NODES:
        run.cluster.nodes[name].wait_up()
    run.cluster.wait_members(*NODES, seconds=30)
    at = time.monotonic()
    run.wait_answers(at, seconds=30)
    until(lambda: set(run.cluster.members()) == set(NODES), 15, "all are members")
