"""A node's figures, read on demand: its counters, and its present state.

Nothing here runs by itself, and nothing waits. Reading costs some ten microseconds for each type
that the node hosts.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator
from heapq import nsmallest
from pathlib import Path

from sharding_app.protocol.histogram import Histogram, added
from sharding_app.protocol.ids import ShardId
from sharding_app.protocol.messages import (
    Coordination,
    Entities,
    EntityState,
    GetEntities,
    GetNodeTrend,
    NodeStats,
    NodeTrend,
    SlowCommand,
    Trouble,
    TypeStats,
)
from sharding_app.protocol.trend import FAILURES, Reading, Trends
from sharding_app.runtime.hosting.type_host import TypeHost
from sharding_app.runtime.links.links import LinksStatistics
from sharding_app.runtime.node.interfaces import NodeParts

TRANSPORT_GAUGES = ("connections", "connections_unproven", "peers_by_layer", "layer_away_seconds")
"""What a transport has now, among what it has counted."""

HOTTEST = 10
TROUBLES = 50
MAX_ENTITIES = 1000
_STATM = Path("/proc/self/statm")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def read_stats(node: NodeParts, request: int) -> NodeStats:
    """Return a node's figures."""
    now = node.ports.clock.now()
    links = node.links.statistics()
    return NodeStats(
        request,
        now,
        _gauges(node, links, now),
        _counters(node, links),
        _histograms(node),
        [_type(host, now) for host in node.hosts.values()],
        [(name, reason, count) for (name, reason), count in node.region_client.drops.items()],
        _troubles(node, now),
        _coordination(node),
        _writers(node),
    )


def _writers(node: NodeParts) -> list[tuple[str, str, ShardId, int]]:
    names = {host.type_id: name for name, host in node.hosts.items()}
    found = node.writer.figures.writers.top(HOTTEST)
    return [(names.get(number, ""), entity, shard, count) for (entity, number, shard), count in found]


def _gauges(node: NodeParts, links: LinksStatistics, now: float) -> dict[str, float]:
    watch = node.node_ports.watch
    lines = links.links.values()
    return {
        "lease_seconds": max(0.0, node.lifeline.valid_until - now),
        "loop_lag_seconds": watch.lag_seconds,
        "worst_loop_lag_seconds": watch.worst_lag_seconds,
        "memory_bytes": float(memory_bytes()),
        "entities": float(sum(host.entities for host in node.hosts.values())),
        "shards": float(sum(len(host.shards) for host in node.hosts.values())),
        "pending_asks": float(len(node.region_client.pending)),
        "waiting_asks": float(sum(region.waiting for region in node.region_client.regions.values())),
        "buffered_bytes": float(sum(region.bytes for region in node.region_client.regions.values())),
        "answers_waiting_bytes": float(node.outbox.waiting_bytes),
        "journal_waiting": float(node.writer.waiting),
        "journal_under_way": float(node.writer.under_way),
        "journal_locked_shards": float(node.writer.locked_shards),
        "messages_in_memory": float(node.hosting.deliverer.pending),
        "followers_waiting": float(node.hosting.following.waiting),
        "longest_recovery_events": float(
            max((host.loader.longest_events for host in node.hosts.values()), default=0)
        ),
        "links": float(len(links.links)),
        "link_queued_messages": float(sum(line.queued_messages for line in lines)),
        "link_queued_bytes": float(sum(line.queued_bytes for line in lines)),
        "wall_seconds": time.time(),  # to compare clocks by; nothing is decided by it
        "link_round_trip_seconds": max((line.round_trip_seconds for line in lines), default=0.0),
        **{
            f"transport_{name}": float(count)
            for name, count in node.ports.transport.statistics().items()
            if name in TRANSPORT_GAUGES
        },
    }


def _counters(node: NodeParts, links: LinksStatistics) -> dict[str, int]:
    writer, lines = node.writer.figures, links.links.values()
    return {
        "asks": node.region_client.asks,
        "answers_dropped": node.drops["reply_dropped"],
        "answers": node.region_client.answers,
        "journal_commits": writer.commits,
        "journal_appends": writer.appends,
        "journal_overlaps": node.writer.overlapping,
        "journal_events": writer.rows,
        "journal_failures": writer.failures,
        "messages_delivered": node.hosting.deliverer.figures.delivered,
        "messages_retried": node.hosting.deliverer.figures.retried,
        "messages_failed": node.hosting.deliverer.figures.failures,
        "messages_parked": node.hosting.deliverer.figures.parked,
        "followed_events": node.hosting.following.counters["events"],
        "follower_questions": node.hosting.following.counters["questions"],
        "follower_reads": node.hosting.following.counters["reads"],
        "followers_refused": node.hosting.following.counters["refused"],
        "lifeline_losses": node.lifeline.losses,
        "loop_blocked": node.node_ports.watch.blocked,
        "cpu_milliseconds": round(time.process_time() * 1000),
        "link_messages_sent": sum(line.messages_sent for line in lines),
        "link_frames_resent": sum(line.frames_resent for line in lines),
        "link_frames_late": sum(line.frames_late for line in lines),
        "link_put_refused": sum(line.put_refused for line in lines),
        **{f"link_{name}": count for name, count in links.counters.items()},
        **{
            f"transport_{name}": count
            for name, count in node.ports.transport.statistics().items()
            if name not in TRANSPORT_GAUGES
        },
    }


def _histograms(node: NodeParts) -> dict[str, tuple[list[int], float]]:
    found = {
        "journal_append_seconds": node.writer.figures.append_seconds,
        "journal_batch_rows": node.writer.figures.batch_rows,
        "home_seconds": node.region_client.home_seconds,
        "timer_lateness_seconds": node.hosting.deliverer.figures.lateness,
    }
    if node.coordinator is not None:
        found["hand_off_pause_seconds"] = node.coordinator.machine.timeline.pauses
    return {name: (list(histogram.counts), histogram.sum) for name, histogram in found.items()}


def _type(host: TypeHost, now: float) -> TypeStats:
    meter = host.meter
    counters = Counter(host.counters)
    counters.update(host.execution.counters)
    counters.update(host.execution.snapshots.counters)
    counters.update(host.execution.retention.counters)
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
        [(entity, shard, count) for (entity, shard), count in meter.hottest.top(HOTTEST)],
        *host.entity_life.failed_starts.report(),
        [
            SlowCommand(now - each.at, each.entity, each.command, each.seconds)
            for each in meter.slowest.top(HOTTEST, now)
        ],
        meter.shards.top(HOTTEST),
    )


def _troubles(node: NodeParts, now: float) -> list[Trouble]:
    """Return the troubles, the newest first."""
    found = [
        Trouble(now - mishap.at, name, mishap.entity, mishap.command, mishap.reason)
        for name, host in node.hosts.items()
        for mishap in host.meter.troubles
    ]
    return sorted(found, key=lambda each: each.age_seconds)[:TROUBLES]


def _coordination(node: NodeParts) -> Coordination | None:
    shell = node.coordinator
    if shell is None:
        return None
    machine = shell.machine
    return Coordination(
        shell.term,
        machine.rebalancing.enabled,
        len(machine.handoffs.active),
        len(machine.handoffs.queued),
        len(machine.tables.starting),
        len(machine.waiters),
        machine.placement.strategies.failing,
        dict(machine.placement.strategies.failures),
        list(machine.placement.heard),
    )


def read_entities(node: NodeParts, asked: GetEntities) -> Entities:
    """Return the entities in memory in one shard, by id, up to the limit that was asked for."""
    host = node.hosts.get(asked.type)
    shard = None if host is None else host.shards.get(asked.shard)
    if shard is None:
        return Entities(asked.request, 0, 0, [])
    now = node.ports.clock.now()
    if asked.entity:
        later = iter([asked.entity] if asked.entity in shard.slots else [])
    else:
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


def read_figures(node: NodeParts) -> Reading:
    """Return the figures that the charts show over time."""
    hosts, writer = node.hosts.values(), node.writer
    latency = added([host.meter.latency.counts for host in hosts]) or Histogram().counts
    return Reading(
        node.ports.clock.now(),
        counts=(
            sum(host.meter.commands for host in hosts),
            sum(count for host in hosts for count in _failures(host)),
            sum(host.loader.entities for host in hosts),
            time.process_time(),
        ),
        histograms=(latency, list(writer.figures.append_seconds.counts)),
        levels=(
            sum(host.entities for host in hosts),
            sum(len(host.shards) for host in hosts),
            memory_bytes(),
        ),
        peaks=(
            node.node_ports.watch.take_lag_seconds(),
            writer.waiting,
            node.hosting.deliverer.pending,
        ),
    )


def _failures(host: TypeHost) -> Iterator[int]:
    for counters in (host.counters, host.execution.counters):
        yield from (counters[name] for name in FAILURES if name in counters)


def answer_trend(trends: Trends, asked: GetNodeTrend, now: float) -> NodeTrend:
    """Return a node's samples of the period that was asked for."""
    trend = trends.spans.get(asked.period)
    if trend is None or trend.began is None:
        return NodeTrend(asked.request, asked.period, now, now, [], {})
    return NodeTrend(asked.request, asked.period, now, trend.began, trend.at.tolist(), dict(trend.figures()))


def memory_bytes() -> int:
    """Return the process's present memory, or its peak if the system does not say."""
    try:
        return int(_STATM.read_text().split()[1]) * _PAGE_BYTES
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
