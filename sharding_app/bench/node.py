"""A node of the benchmarks: like any other, but it hosts only their types, and reports its resource
use.

On "stats" on its standard input it prints a line of figures. At the end of that input it leaves, so
that it never outlives the process that started it.
"""

import asyncio
import dataclasses
import json
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable

import msgspec

from sharding_app.bench.isolation import NODE_PREFIX
from sharding_app.bench.machine import resident_bytes
from sharding_app.runtime.base.clock import BootClock
from sharding_app.runtime.base.config import NodeConfig
from sharding_app.runtime.liveness.watchdog import Watchdog
from sharding_app.runtime.node.runner import NodeRunner
from sharding_app.settings.load import get_settings
from sharding_app.wiring import entity_types, node_config, node_ports

LEAVE_SECONDS = 10.0


def bench_config(name: str) -> NodeConfig:
    """Return the configuration of the settings, but with one node enough and every node a
    candidate.
    """
    config = node_config(name)
    alone = msgspec.structs.replace(config.coordinator, min_members=1, min_members_of_role={})
    return dataclasses.replace(config, coordinator=alone, candidate=True, check_state=False)


async def run_node(name: str) -> None:
    settings, clock, loop = get_settings(), BootClock(), asyncio.get_running_loop()
    watchdog = Watchdog(clock, settings.handler_warning_seconds)
    watchdog.start()
    runner = NodeRunner(
        bench_config(name),
        entity_types(settings),
        node_ports(settings, watchdog, clock),
        lambda: f"{NODE_PREFIX}{secrets.token_hex(8)}",
    )

    def heard(word: str) -> None:
        if word == "stats":
            print(f"stats {json.dumps(figures(runner))}", flush=True)
        else:
            runner.request_stop(LEAVE_SECONDS)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, heard, "")
    _listen(lambda word: loop.call_soon_threadsafe(heard, word))
    announcing = loop.create_task(_announce(runner))
    try:
        await runner.run()
    finally:
        announcing.cancel()
        watchdog.stop()


def figures(runner: NodeRunner) -> dict[str, float]:
    """Return the resource use and work of this process since it began."""
    found: dict[str, float] = {
        "cpu_seconds": time.process_time(),
        "resident_bytes": resident_bytes(os.getpid()),
    }
    node = runner.node
    if node is not None and runner.up.is_set():
        links = node.links.statistics().links.values()
        found |= {
            "commits": node.writer.figures.appends,
            "rows": node.writer.figures.rows,
            "messages": sum(each.messages_sent + each.messages_received for each in links),
            "frames": sum(each.frames_sent + each.acks_sent for each in links),
            "reading": node.hosting.parts[0].deliverer.is_reading,
            "pending": node.hosting.parts[0].deliverer.pending,
            "entities": sum(host.entities for host in node.hosting.all_hosts()),
            "loaded": sum(
                len(shard.slots) - shard.busy
                for host in node.hosting.all_hosts()
                for shard in host.shards.values()
            ),
            "shards": sum(len(host.shards) for host in node.hosting.all_hosts()),
            "coordinator": node.coordinator is not None,
            "worst_lag_seconds": node.node_ports.watch.worst_lag_seconds,
        }
    return found


async def _announce(runner: NodeRunner) -> None:
    await runner.up.wait()
    if runner.node is not None:
        print(f"up {runner.node.incarnation}", flush=True)


def _listen(tell: Callable[[str], object]) -> None:
    def wait() -> None:
        for line in sys.stdin:
            tell(line.strip())
        tell("")

    threading.Thread(target=wait, name="sharding-parent", daemon=True).start()
