"""The faults of the mixed runs. Each is made, lasts for a while, and is undone; several may overlap.

A fault is a function of the stage that makes it and returns what was done, in words, and how it is undone. Chance comes
from the run's seed alone, so that the same seed makes the same faults at the same moments.
"""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import psycopg

from project.servers import ServersError
from tests.acceptance.cluster import Cluster, Node, Servers
from tests.acceptance.machine import clock_library, may_mount, may_wire
from tests.acceptance.scenario import Scenario

LEAVE_SECONDS = 5.0
ROLL_SECONDS = 8.0
"""Of all nodes together. A free cluster needs less; where others hold it up, it must not keep up their end in turn."""
FOLLOW_SECONDS = 4.0
"""Until a standby that is back has found its primary. One that has not by then is made anew."""
CROWD = 10
SWELLING, SWOLLEN_MEGABYTES = 12, 64


class Made(NamedTuple):
    """A fault that has been made."""

    what: str
    undo: Callable[[], None]


class Stage(NamedTuple):
    """What faults may touch."""

    run: Scenario
    names: tuple[str, ...]
    "The nodes that should be there."

    @property
    def cluster(self) -> Cluster:
        return self.run.cluster

    def pick(self, what: str = "any") -> Node:
        """Choose a node by chance, or the coordinator's where the database can say who it is."""
        name = ""
        if what == "coordinator":
            with suppress(psycopg.Error):
                name = self.cluster.coordinator()
        return self.cluster.nodes[name if name in self.names else self.cluster.chance.choice(self.names)]


Fault = Callable[[Stage], Made]


def nothing() -> None:
    """There is nothing to undo: it is over by itself."""


def kill(stage: Stage, what: str = "any") -> Made:
    node = stage.pick(what)
    node.signal(signal.SIGKILL)
    return Made(f"kill -9 of {node.name}", lambda: _launch(stage, node.name))


def kill_coordinator(stage: Stage) -> Made:
    return kill(stage, "coordinator")


def leave(stage: Stage) -> Made:
    """An orderly end, and another version of the application in its place."""
    node = stage.pick()
    node.signal(signal.SIGTERM)
    # While versions differ, nothing is rebalanced: mostly they do not.
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
    """More nodes, that go again."""
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
    """All nodes, one after the other, are replaced by ones with a new version of the application."""
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
        with suppress(AssertionError):  # another fault keeps it from coming up: it will
            stage.cluster.nodes[name].wait_up(left())
    return Made(f"all are replaced by version {version}, one by one", nothing)


def stop_postgres(stage: Stage) -> Made:
    postgres = stage.cluster.servers.postgres
    hard = stage.cluster.chance.random() < 0.5
    if postgres.running:
        if hard:
            postgres.kill()
        else:
            postgres.end_with(signal.SIGQUIT)
    return Made(
        f"Postgres {'killed -9' if hard else 'stopped hard'}", lambda: postgres_again(stage.cluster.servers)
    )


def fill_disk(stage: Stage) -> Made:
    """Nothing more fits where Postgres keeps its data; it may even end for that."""
    disk = stage.cluster.servers.disk
    assert disk is not None
    disk.fill()

    def clear() -> None:
        disk.clear()
        postgres_again(stage.cluster.servers)

    return Made("the disk of Postgres is full", clear)


def part_standby(stage: Stage) -> Made:
    """Commits wait: the standby is cut off from the primary, or down. Nothing may be acknowledged meanwhile."""
    pair = stage.cluster.servers.pair
    assert pair is not None
    if stage.cluster.chance.random() < 0.7:
        pair.cut()
        return Made("the standby is cut off", pair.mend)
    pair.standby.kill()
    return Made("the standby is killed -9", lambda: standby_again(stage.cluster.servers))


def promote(stage: Stage) -> Made:
    """The primary dies, and the standby takes its place. Often it has been cut off from the primary for a moment."""
    servers, chance = stage.cluster.servers, stage.cluster.chance
    pair = servers.pair
    assert pair is not None
    cut_seconds = chance.choice([0.0, chance.uniform(0.1, 2.0)])
    if not pair.in_sync or (servers.disk is not None and servers.disk.full):
        return Made("no promotion: the standby is not in sync", nothing)
    if cut_seconds:
        pair.cut()
        time.sleep(cut_seconds)
    pair.promote()
    return Made(f"the standby is promoted, {cut_seconds:.1f} s after it was cut off", nothing)


def standby_again(servers: Servers) -> None:
    """Make sure that a synchronous standby follows the primary, a new one if need be."""
    pair = servers.pair
    if pair is None:
        return
    postgres_again(servers)
    if pair.follows:
        if not pair.standby.running:
            pair.standby.start()
        pair.mend()
        deadline = time.monotonic() + FOLLOW_SECONDS
        while time.monotonic() < deadline:
            if pair.in_sync:
                return
            time.sleep(0.1)
    pair.attach()


def redis_again(cluster: Cluster) -> None:
    if not cluster.servers.redis.running:
        cluster.servers.redis.start()


def postgres_again(servers: Servers) -> None:
    """Start it if it does not run. While its disk is full it may end again at once: whoever clears that starts it."""
    postgres, disk = servers.postgres, servers.disk
    if postgres.running:
        return
    postgres.kill()
    try:
        postgres.start()
    except ServersError:
        if disk is None or not disk.full:
            raise


def kill_redis(stage: Stage) -> Made:
    redis = stage.cluster.servers.redis
    if redis.running:
        redis.kill()
    return Made("Redis killed -9", lambda: redis_again(stage.cluster))


def end_sessions(stage: Stage) -> Made:
    """Some of the sessions of the nodes are ended by the server."""
    purpose = stage.cluster.chance.choice(
        ["journal", "recovery", "reads", "control", "lifeline-0", "lifeline-1", ""]
    )
    with suppress(psycopg.Error):
        stage.cluster.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'sharding/%%'"
            " AND application_name LIKE '%%' || %s", purpose,
        )  # fmt: skip
    return Made(f"sessions for {purpose or 'everything'} ended", nothing)


def cut_off(stage: Stage) -> Made:
    """One node's way to one server fails in one of the ways in which ways fail."""
    chance = stage.cluster.chance
    name, server = chance.choice(list(stage.cluster.proxies)), chance.choice(["postgres", "redis"])
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
    ways[way]()
    return Made(f"{node.name} to {server}: {way}", proxy.forward)


def lock_rows(stage: Stage) -> Made:
    """Somebody holds what appends or decisions need, for longer than anybody waits for it."""
    what = stage.cluster.chance.choice([
        "SELECT FROM sharding_shard ORDER BY shard LIMIT 10 FOR UPDATE",
        "LOCK TABLE sharding_event IN SHARE MODE",
        "SELECT FROM sharding_node FOR UPDATE",
        "SELECT FROM sharding_coordinator FOR UPDATE",
    ])  # fmt: skip
    holder: psycopg.Connection[tuple[object, ...]] | None = None
    with suppress(psycopg.Error):
        holder = psycopg.connect(stage.cluster.database_url, connect_timeout=2)
        holder.execute("SET lock_timeout = '2s'")
        holder.execute(what)

    def let_go() -> None:
        if holder is not None:
            holder.close()

    return Made(f"held: {what}", let_go)


def stall(stage: Stage) -> Made:
    """A handler holds a node's event loop."""
    entity = f"stall{stage.cluster.chance.randrange(100)}"
    seconds = stage.cluster.chance.uniform(0.3, 4.0)
    stage.run.load.order(f"stall {entity} {seconds:.2f}")
    return Made(f"a handler blocks for {seconds:.1f} s", nothing)


def no_descriptors(stage: Stage) -> Made:
    """A node may open nothing more, and what it has is cut."""
    node = stage.pick()
    _, hard = resource.prlimit(node.pid, resource.RLIMIT_NOFILE)
    with suppress(ProcessLookupError):
        resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (4, hard))
    for proxy in stage.cluster.proxies.get(node.name, {}).values():
        proxy.reset()

    def give() -> None:
        with suppress(ProcessLookupError):
            resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (min(1024, hard) if hard > 0 else 1024, hard))

    return Made(f"{node.name} is out of file descriptors", give)


def no_memory(stage: Stage, name: str = "") -> Made:
    """A node gets no more memory than it has, and handlers ask for some."""
    node = stage.cluster.nodes[name] if name else stage.pick()
    _, hard = resource.prlimit(node.pid, resource.RLIMIT_AS)
    resource.prlimit(node.pid, resource.RLIMIT_AS, (node.address_space(), hard))
    for number in range(SWELLING):
        stage.run.load.order(f"swell swell{number} {SWOLLEN_MEGABYTES}")

    def give() -> None:
        with suppress(ProcessLookupError):
            resource.prlimit(node.pid, resource.RLIMIT_AS, (hard, hard))
        if not node.alive:  # that is one way to deal with it
            _launch(stage, node.name)

    return Made(f"{node.name} is out of memory", give)


def step_clock(stage: Stage) -> Made:
    """The time of day jumps for one process."""
    chance = stage.cluster.chance
    name = chance.choice(list(stage.cluster.clocks))
    seconds = chance.choice([-86_400, -3_600, -30, -3, 3, 30, 3_600, 86_400])
    stage.cluster.clocks[name].step(seconds)
    return Made(f"the clock of {name} steps by {seconds} s", lambda: stage.cluster.clocks[name].step(0))


def unplug(stage: Stage) -> Made:
    """The cable of one node, not a proxy: nothing is reset, and nobody is told."""
    cable = stage.cluster.servers.cable
    assert cable is not None
    cable.unplug()
    return Made(f"{stage.cluster.wired} is unplugged", cable.plug)


FAULTS: dict[str, tuple[Fault, float]] = {
    "kill": (kill, 2.0),
    "kill-coordinator": (kill_coordinator, 2.0),
    "leave": (leave, 2.0),
    "freeze": (freeze, 2.0),
    "freeze-coordinator": (freeze_coordinator, 2.0),
    "join": (join, 1.0),
    "crowd": (crowd, 0.2),
    "roll": (roll, 0.4),
    "postgres": (stop_postgres, 1.5),
    "redis": (kill_redis, 1.5),
    "sessions": (end_sessions, 2.0),
    "cut-off": (cut_off, 5.0),
    "locks": (lock_rows, 1.5),
    "stall": (stall, 1.0),
    "descriptors": (no_descriptors, 1.0),
    "memory": (no_memory, 1.0),
    "clock": (step_clock, 1.0),
    "disk": (fill_disk, 1.0),
    "cable": (unplug, 1.5),
    "standby": (part_standby, 2.0),
    "promote": (promote, 2.0),
}
"""By name, with how often each is chosen."""


def possible(*, standby: bool = False) -> list[str]:
    """Return the names of the faults that this machine allows, with or without a standby."""
    lacking = {
        "standby": not standby,
        "promote": not standby,
        "descriptors": sys.platform != "linux",
        "memory": sys.platform != "linux",
        "clock": not clock_library(),
        "disk": not may_mount(),
        "cable": not may_wire(),
    }
    return [name for name in FAULTS if not lacking.get(name)]


def _launch(stage: Stage, name: str, *extra: str) -> None:
    stage.cluster.launch(name, *extra)
