"""Faults that need no power over the servers. Each is made, lasts for a while, and is undone.

Several may overlap. A fault is a function of the stage; it returns its name in words, and its undo.
Chance comes from the run's seed alone, so that the same seed makes the same faults at the same
moments.
"""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from sharding_app.torture.cluster import Cluster
from sharding_app.torture.processes import NoAnswer, Node, NotInTime
from sharding_app.torture.scenario import Scenario

LEAVE_SECONDS = 5.0
ROLL_SECONDS = 8.0
"""Of all nodes together. A free cluster needs less. If other faults hold it up, it must not delay
their end.
"""
CROWD = 10
SWELLING, SWOLLEN_MEGABYTES = 12, 64


class Made(NamedTuple):
    """A fault that has been made."""

    what: str
    undo: Callable[[], None]


class Stage(NamedTuple):
    """The parts of a run that faults may touch."""

    run: Scenario[Any]
    names: tuple[str, ...]
    "Nodes that should be there."
    starved: set[str]
    "Nodes that were denied a resource. One that is just starting may have ended because of that."

    @property
    def cluster(self) -> Cluster:
        found: Cluster = self.run.cluster
        return found

    def pick(self, what: str = "any") -> Node:
        """Choose a node by chance, or the coordinator's if the database can name it."""
        name = ""
        if what == "coordinator":
            with suppress(NoAnswer):
                name = self.cluster.coordinator()
        return self.cluster.nodes[name if name in self.names else self.cluster.chance.choice(self.names)]


Fault = Callable[[Stage], Made]


def nothing() -> None:
    """Undo nothing: the fault is over by itself."""


def kill(stage: Stage, what: str = "any") -> Made:
    node = stage.pick(what)
    node.signal(signal.SIGKILL)
    return Made(f"kill -9 of {node.name}", lambda: _launch(stage, node.name))


def kill_coordinator(stage: Stage) -> Made:
    return kill(stage, "coordinator")


def leave(stage: Stage) -> Made:
    """End a node in order, and start another version of the application in its place."""
    node = stage.pick()
    node.signal(signal.SIGTERM)
    # While versions differ, nothing is rebalanced. So mostly they do not.
    version = stage.cluster.chance.choice(["0.0.0", "0.0.0", "0.0.0", "0.0.1"])

    def replace() -> None:
        # It has its time to hand over, unless another fault keeps it from that.
        with suppress(subprocess.TimeoutExpired):
            node.child.wait(LEAVE_SECONDS)
        _launch(stage, node.name, f"--app-version={version}")

    return Made(f"SIGTERM of {node.name}, then version {version}", replace)


def freeze(stage: Stage, what: str = "any") -> Made:
    node = stage.pick(what)
    node.signal(signal.SIGSTOP)
    return Made(f"SIGSTOP of {node.name}", lambda: node.signal(signal.SIGCONT))


def freeze_coordinator(stage: Stage) -> Made:
    return freeze(stage, "coordinator")


def join(stage: Stage, count: int = 2) -> Made:
    """Let more nodes join, and leave again."""
    guests = [f"guest{number}" for number in range(1, count + 1)]
    for name in guests:
        stage.cluster.launch(name)

    def go() -> None:
        for name in guests:
            stage.cluster.nodes[name].signal(signal.SIGTERM)

    return Made(f"{count} nodes join at once, then leave at once", go)


def crowd(stage: Stage) -> Made:
    return join(stage, CROWD)


def roll(stage: Stage) -> Made:
    """Replace all nodes, one after the other, by a new version of the application."""
    version = f"0.1.{stage.cluster.chance.randrange(1000)}"
    deadline = time.monotonic() + ROLL_SECONDS

    def left() -> float:
        return min(LEAVE_SECONDS, max(0.0, deadline - time.monotonic()))

    for name in stage.names:
        node = stage.cluster.nodes[name]
        node.signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            node.child.wait(left())
        _launch(stage, name, f"--app-version={version}")
        with suppress(NotInTime):  # another fault keeps it from coming up in time
            stage.cluster.nodes[name].wait_up(left())
    return Made(f"all are replaced by version {version}, one by one", nothing)


def end_sessions(stage: Stage) -> Made:
    """End some sessions of the nodes on the server."""
    purpose = stage.cluster.chance.choice(
        ["journal", "recovery", "reads", "control", "lifeline-0", "lifeline-1", ""]
    )
    journals = stage.cluster.journals
    journal = stage.cluster.chance.choice(journals) if len(journals) > 1 else ""
    if not purpose:
        for name in stage.names:
            stage.cluster.nodes[name].loses_connections()
    with suppress(NoAnswer):
        stage.cluster.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'sharding/%%'"
            " AND datname = current_database() AND application_name LIKE '%%' || %s", purpose, journal=journal,
        )  # fmt: skip
    where = f" in the journal {journal}" if journal else ""
    return Made(f"sessions for {purpose or 'everything'} ended{where}", nothing)


def cut_off(stage: Stage) -> Made:
    """Break one node's connection to one server, in one of the ways in which networks fail."""
    chance = stage.cluster.chance
    name = chance.choice(list(stage.cluster.proxies))
    server = chance.choice(sorted(stage.cluster.proxies[name]))
    node = stage.cluster.nodes[name]
    proxy = stage.cluster.proxies[node.name][server]
    ways: dict[str, Callable[[], None]] = {
        "refused": proxy.refuse,
        "silent": proxy.hang,
        "not heard": lambda: proxy.one_way("up"),
        "not answered": lambda: proxy.one_way("down"),
        "slow": lambda: proxy.slow(0.05),
        "cut half-way": lambda: proxy.cut(chance.randrange(100, 50_000)),
        "reset": proxy.reset,
    }
    way = chance.choice(list(ways))
    if way in ("refused", "reset"):
        node.loses_connections()
    ways[way]()
    return Made(f"{node.name} to {server}: {way}", proxy.forward)


def lock_rows(stage: Stage) -> Made:
    """Hold rows or tables that appends or decisions need, for longer than these wait for them."""
    what = stage.cluster.chance.choice([
        "SELECT FROM sharding_shard ORDER BY shard LIMIT 10 FOR UPDATE",
        "LOCK TABLE sharding_event IN SHARE MODE",
        "SELECT FROM sharding_node FOR UPDATE",
        "SELECT FROM sharding_coordinator FOR UPDATE",
    ])  # fmt: skip
    holder = None
    with suppress(NoAnswer):
        holder = stage.cluster.hold(what)

    def let_go() -> None:
        if holder is not None:
            holder.close()

    return Made(f"held: {what}", let_go)


def stall(stage: Stage) -> Made:
    """Let a handler hold a node's event loop."""
    entity = f"stall{stage.cluster.chance.randrange(100)}"
    seconds = stage.cluster.chance.uniform(0.3, 4.0)
    stage.run.load.order(f"stall {entity} {seconds:.2f}")
    return Made(f"a handler blocks for {seconds:.1f} s", nothing)


def no_descriptors(stage: Stage) -> Made:
    """Let a node open no more descriptors, and cut its connections."""
    node = stage.pick()
    stage.starved.add(node.name)
    _limit(node, resource.RLIMIT_NOFILE, lambda _: 4)
    node.loses_connections()
    for proxy in stage.cluster.proxies.get(node.name, {}).values():
        proxy.reset()

    def give() -> None:
        _limit(node, resource.RLIMIT_NOFILE, lambda hard: min(1024, hard) if hard > 0 else 1024)

    return Made(f"{node.name} is out of file descriptors", give)


def no_memory(stage: Stage, name: str = "") -> Made:
    """Give a node no more memory than it has, and have handlers ask for some."""
    node = stage.cluster.nodes[name] if name else stage.pick()
    stage.starved.add(node.name)
    _limit(node, resource.RLIMIT_AS, lambda _: node.address_space())
    for number in range(SWELLING):
        stage.run.load.order(f"swell swell{number} {SWOLLEN_MEGABYTES}")

    def give() -> None:
        _limit(node, resource.RLIMIT_AS, lambda hard: hard)

    return Made(f"{node.name} is out of memory", give)


FAULTS: dict[str, tuple[Fault, float]] = {
    "kill": (kill, 2.0),
    "kill-coordinator": (kill_coordinator, 2.0),
    "leave": (leave, 2.0),
    "freeze": (freeze, 2.0),
    "freeze-coordinator": (freeze_coordinator, 2.0),
    "join": (join, 1.0),
    "crowd": (crowd, 0.2),
    "roll": (roll, 0.4),
    "sessions": (end_sessions, 2.0),
    "cut-off": (cut_off, 5.0),
    "locks": (lock_rows, 1.5),
    "stall": (stall, 1.0),
    "descriptors": (no_descriptors, 1.0),
    "memory": (no_memory, 1.0),
}
"""Faults by name, each with its weight."""


def possible(*, proxies: bool = True) -> dict[str, tuple[Fault, float]]:
    """Return the faults that this machine allows. Without proxies no connection can be cut."""
    lacking = {
        "cut-off": not proxies,
        "descriptors": sys.platform != "linux",
        "memory": sys.platform != "linux",
    }
    return {name: fault for name, fault in FAULTS.items() if not lacking.get(name)}


def _launch(stage: Stage, name: str, *extra: str) -> None:
    stage.cluster.launch(name, *extra)


def _limit(node: Node, which: int, soft: Callable[[int], int]) -> None:
    """Limit a node's use of a resource; `soft` returns the limit, given the hard one.

    A node that has ended is left alone: its number may be that of a foreign process by now.
    """
    if node.alive:
        _, hard = resource.prlimit(node.pid, which)
        resource.prlimit(node.pid, which, (soft(hard), hard))
