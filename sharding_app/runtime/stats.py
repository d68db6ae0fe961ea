"""A node's figures, read on demand: what it counts all the time, and how it is at this moment.

Nothing here runs by itself, and nothing waits. Reading costs some ten microseconds for each type that the node hosts.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections import Counter
from heapq import nsmallest
from pathlib import Path
from typing import TYPE_CHECKING

from sharding_app.core.messages import (
    Coordination,
    Entities,
    EntityState,
    GetEntities,
    NodeStats,
    Trouble,
    TypeStats,
)

if TYPE_CHECKING:
    from sharding_app.runtime.host import Host
    from sharding_app.runtime.links import LinksStatistics
    from sharding_app.runtime.node import Node

HOTTEST = 10
TROUBLES = 50
MAX_ENTITIES = 1000
_STATM = Path("/proc/self/statm")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def read_stats(node: Node, request: int) -> NodeStats:
    """What a node says of itself."""
    now = node.ports.clock.now()
    links = node.links.statistics()
    return NodeStats(
        request,
        now,
        _gauges(node, links, now),
        _counters(node, links),
        _histograms(node),
        [_type(host) for host in node.hosts.values()],
        [(name, reason, count) for (name, reason), count in node.asker.drops.items()],
        _troubles(node, now),
        _coordination(node),
    )


def _gauges(node: Node, links: LinksStatistics, now: float) -> dict[str, float]:
    watch = node.node_ports.watch
    lines = links.links.values()
    return {
        "lease_seconds": max(0.0, node.lifeline.valid_until - now),
        "loop_lag_seconds": float(getattr(watch, "lag_seconds", 0.0)),
        "worst_loop_lag_seconds": float(getattr(watch, "worst_lag_seconds", 0.0)),
        "memory_bytes": float(memory_bytes()),
        "entities": float(sum(host.entities for host in node.hosts.values())),
        "shards": float(sum(len(host.shards) for host in node.hosts.values())),
        "pending_asks": float(len(node.asker.pending)),
        "waiting_asks": float(sum(region.waiting for region in node.asker.regions.values())),
        "buffered_bytes": float(sum(region.bytes for region in node.asker.regions.values())),
        "answers_waiting_bytes": float(node.outbox.waiting_bytes),
        "journal_waiting": float(node.writer.waiting),
        "journal_locked_shards": float(node.writer.locked.shards),
        "longest_recovery_events": float(
            max((host.loader.longest_events for host in node.hosts.values()), default=0)
        ),
        "links": float(len(links.links)),
        "link_queued_messages": float(sum(line.queued_messages for line in lines)),
        "link_queued_bytes": float(sum(line.queued_bytes for line in lines)),
        "wall_seconds": time.time(),  # to compare clocks by; nothing is decided by it
        "link_round_trip_seconds": max((line.round_trip_seconds for line in lines), default=0.0),
    }


def _counters(node: Node, links: LinksStatistics) -> dict[str, int]:
    writer, lines = node.writer, links.links.values()
    return {
        "asks": node.asker.asks,
        "answers_dropped": node.drops["reply_dropped"],
        "answers": node.asker.answers,
        "journal_commits": writer.commits,
        "journal_appends": writer.appends,
        "journal_events": writer.rows,
        "journal_failures": writer.failures,
        "lifeline_losses": int(getattr(node.lifeline, "losses", 0)),
        "loop_blocked": int(getattr(node.node_ports.watch, "blocked", 0)),
        "cpu_milliseconds": round(time.process_time() * 1000),
        "link_messages_sent": sum(line.messages_sent for line in lines),
        "link_frames_resent": sum(line.frames_resent for line in lines),
        "link_frames_late": sum(line.frames_late for line in lines),
        "link_put_refused": sum(line.put_refused for line in lines),
        **{f"link_{name}": count for name, count in links.counters.items()},
        **{f"transport_{name}": count for name, count in node.ports.transport.statistics().items()},
    }


def _histograms(node: Node) -> dict[str, tuple[list[int], float]]:
    found = {
        "journal_append_seconds": node.writer.append_seconds,
        "journal_batch_rows": node.writer.batch_rows,
        "home_seconds": node.asker.home_seconds,
    }
    if node.coordinator is not None:
        found["hand_off_pause_seconds"] = node.coordinator.machine.moves.pauses
    return {name: (list(histogram.counts), histogram.sum) for name, histogram in found.items()}


def _type(host: Host) -> TypeStats:
    meter = host.meter
    counters = Counter(host.counters)
    counters.update(host.execution.counters)
    counters.update(host.execution.snapshots.counters)
    if host.remembering is not None:
        counters.update({f"remembered_{name}": count for name, count in host.remembering.counters.items()})
    return TypeStats(
        host.type.name,
        len(host.shards),
        host.entities,
        meter.commands,
        dict(counters),
        list(meter.latency.counts),
        meter.latency.sum,
        meter.hottest.top(HOTTEST),
        *host.recovery.failed_starts.report(),
    )


def _troubles(node: Node, now: float) -> list[Trouble]:
    """The newest ones first."""
    found = [
        Trouble(now - mishap.at, name, mishap.entity, mishap.command, mishap.reason)
        for name, host in node.hosts.items()
        for mishap in host.meter.troubles
    ]
    return sorted(found, key=lambda each: each.age_seconds)[:TROUBLES]


def _coordination(node: Node) -> Coordination | None:
    shell = node.coordinator
    if shell is None:
        return None
    machine = shell.machine
    return Coordination(
        shell.term,
        machine.rounds.enabled,
        len(machine.handoffs.active),
        len(machine.handoffs.queued),
        len(machine.starting),
        len(machine.waiters),
        dict(machine.placement.strategies.failing),
        dict(machine.placement.strategies.failures),
        list(machine.placement.heard),
    )


def read_entities(node: Node, asked: GetEntities) -> Entities:
    """Who is in memory in one shard: as many as were asked for, in the order of the ids."""
    host = node.hosts.get(asked.type)
    shard = None if host is None else host.shards.get(asked.shard)
    if shard is None:
        return Entities(asked.request, 0, 0, [])
    now = node.ports.clock.now()
    later = (entity for entity in shard.slots if entity > asked.after)
    chosen = nsmallest(max(0, min(asked.limit, MAX_ENTITIES)), later)
    return Entities(
        asked.request,
        shard.epoch,
        len(shard.slots),
        [
            EntityState(
                slot.id,
                slot.seq,
                slot.state.name.lower(),
                len(slot.mailbox or ()),
                max(0.0, now - slot.touched),
            )
            for slot in (shard.slots[each] for each in chosen)
        ],
    )


def memory_bytes() -> int:
    """What this process holds in memory now; its peak where the system does not say."""
    try:
        return int(_STATM.read_text().split()[1]) * _PAGE_BYTES
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
