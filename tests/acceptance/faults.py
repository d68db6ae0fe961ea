"""The faults that need servers of one's own, beside those that `sharding_app.torture.faults` makes
on any.
"""

from __future__ import annotations

import signal
import time

from sharding_app.embedded import ServersError
from sharding_app.torture import faults
from sharding_app.torture.faults import Fault, Made, Stage, nothing
from sharding_app.torture.processes import until
from tests.acceptance.cluster import Cluster, Servers
from tests.acceptance.machine import clock_library, may_mount, may_wire

STALLS: dict[str, object] = {"LOOP_STALL_LIMIT_SECONDS": 5.0, "LOOP_STALL_END_SECONDS": 8.0}
"""Settings of clusters whose loops hang: by the defaults, each fault would take a minute."""
ENDS_SECONDS = 30.0
FOLLOW_SECONDS = 4.0
"""Until a standby that is back has found its primary. One that has not by then is made anew."""


def cluster_of(stage: Stage) -> Cluster:
    assert isinstance(stage.cluster, Cluster)
    return stage.cluster


def servers_of(stage: Stage) -> Servers:
    return cluster_of(stage).servers


def stop_postgres(stage: Stage) -> Made:
    postgres = servers_of(stage).postgres
    hard = stage.cluster.chance.random() < 0.5
    if postgres.running:
        if hard:
            postgres.kill()
        else:
            postgres.end_with(signal.SIGQUIT)
    return Made(
        f"Postgres {'killed -9' if hard else 'stopped hard'}", lambda: postgres_again(servers_of(stage))
    )


def stop_journal(stage: Stage) -> Made:
    """The server of a further journal dies, of each in turn. Shards of the others go on."""
    servers = servers_of(stage)
    alias, journal = servers.next_journal()
    if journal.running:
        journal.kill()

    def again() -> None:
        if not journal.running:
            journal.kill()
            journal.start()

    return Made(f"the Postgres of {alias} killed -9", again)


def fill_disk(stage: Stage) -> Made:
    """Nothing more fits where Postgres keeps its data; it may even end for that."""
    disk = servers_of(stage).disk
    assert disk is not None
    disk.fill()

    def clear() -> None:
        disk.clear()
        postgres_again(servers_of(stage))

    return Made("the disk of Postgres is full", clear)


def part_standby(stage: Stage) -> Made:
    """Commits wait: the standby is cut off from the primary, or down. Nothing may be acknowledged
    meanwhile.
    """
    pair = servers_of(stage).pair
    assert pair is not None
    if stage.cluster.chance.random() < 0.7:
        pair.cut()
        return Made("the standby is cut off", pair.mend)
    pair.standby.kill()
    return Made("the standby is killed -9", lambda: standby_again(servers_of(stage)))


def promote(stage: Stage) -> Made:
    """The primary dies, and the standby takes its place. Often it has been cut off from the primary
    for a moment.
    """
    servers, chance = servers_of(stage), stage.cluster.chance
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


def redis_again(servers: Servers) -> None:
    if not servers.redis.running:
        servers.redis.start()


def postgres_again(servers: Servers) -> None:
    """Start it if it does not run. While its disk is full it may end again at once: the fault's end
    starts it then.
    """
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
    redis = servers_of(stage).redis
    if redis.running:
        redis.kill()
    return Made("Redis killed -9", lambda: redis_again(servers_of(stage)))


def step_clock(stage: Stage) -> Made:
    """The time of day jumps for one process."""
    chance = stage.cluster.chance
    name = chance.choice(list(cluster_of(stage).clocks))
    seconds = chance.choice([-86_400, -3_600, -30, -3, 3, 30, 3_600, 86_400])
    cluster_of(stage).clocks[name].step(seconds)
    return Made(f"the clock of {name} steps by {seconds} s", lambda: cluster_of(stage).clocks[name].step(0))


def unplug(stage: Stage) -> Made:
    """The cable of one node, not a proxy: nothing is reset, and no peer is told."""
    cable = servers_of(stage).cable
    assert cable is not None
    cable.unplug()
    return Made(f"{cluster_of(stage).wired} is unplugged", cable.plug)


def hang(stage: Stage) -> Made:
    """The event loop of a node stands still without end. Its process ends, and is started again."""
    node = stage.pick()
    node.signal(signal.SIGUSR2)

    def again() -> None:
        if stage.cluster.nodes[node.name] is not node:
            return  # another fault has put one in its place
        node.signal(signal.SIGCONT)  # it may be frozen as well
        until(lambda: not node.alive, ENDS_SECONDS, f"the process of {node.name} ends by itself")
        stage.cluster.launch(node.name)

    return Made(f"the loop of {node.name} stands still", again)


OURS: dict[str, tuple[Fault, float]] = {
    "postgres": (stop_postgres, 1.5),
    "journal": (stop_journal, 3.0),
    "redis": (kill_redis, 1.5),
    "clock": (step_clock, 1.0),
    "disk": (fill_disk, 1.0),
    "cable": (unplug, 1.5),
    "hang": (hang, 0.7),
    "standby": (part_standby, 2.0),
    "promote": (promote, 2.0),
}
FAULTS = {**faults.FAULTS, **OURS}
"""By name, with how often each is chosen."""


def possible(
    *, standby: bool = False, journals: bool = False, cable: bool = True
) -> dict[str, tuple[Fault, float]]:
    """Return those that this machine allows, with or without a standby, further journals and a
    cable.
    """
    lacking = {
        "journal": not journals,
        "standby": not standby,
        "promote": not standby,
        "clock": not clock_library(),
        "disk": not may_mount(),
        "cable": not (cable and may_wire()),
    }
    return {**faults.possible(), **{name: fault for name, fault in OURS.items() if not lacking.get(name)}}
