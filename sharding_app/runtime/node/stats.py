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
from collections.abc import Iterator, Sequence
from heapq import nsmallest
from pathlib import Path
from typing import TypeVar

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

T = TypeVar("T")

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
        [_type(node.hosting.hosts_of(name), now) for name in node.hosts],
        [(name, reason, count) for (name, reason), count in node.region_client.drops.items()],
        _troubles(node, now),
        _coordination(node),
        _writers(node),
    )


def _writers(node: NodeParts) -> list[tuple[str, str, ShardId, int]]:
    names = {host.type_id: name for name, host in node.hosts.items()}
    found = _most([part.writer.figures.writers.top(HOTTEST) for part in node.hosting.parts])
    return [(names.get(number, ""), entity, shard, count) for (entity, number, shard), count in found]


def _gauges(node: NodeParts, links: LinksStatistics, now: float) -> dict[str, float]:
    watch = node.node_ports.watch
    lines = links.links.values()
    hosts, parts = list(node.hosting.all_hosts()), node.hosting.parts
    return {
        "lease_seconds": max(0.0, node.lifeline.valid_until - now),
        "loop_lag_seconds": watch.lag_seconds,
        "worst_loop_lag_seconds": watch.worst_lag_seconds,
        "memory_bytes": float(memory_bytes()),
        "entities": float(sum(host.entities for host in hosts)),
        "shards": float(sum(len(host.shards) for host in hosts)),
        "pending_asks": float(len(node.region_client.pending)),
        "waiting_asks": float(sum(region.waiting for region in node.region_client.regions.values())),
        "buffered_bytes": float(sum(region.bytes for region in node.region_client.regions.values())),
        "answers_waiting_bytes": float(node.outbox.waiting_bytes),
        "journal_waiting": float(sum(part.writer.waiting for part in parts)),
        "journal_under_way": float(sum(part.writer.under_way for part in parts)),
        "journal_locked_shards": float(sum(part.writer.locked_shards for part in parts)),
        "journals_down": float(sum(bool(part.trouble) for part in parts)),
        "messages_in_memory": float(sum(part.deliverer.pending for part in parts)),
        "followers_waiting": float(sum(part.following.waiting for part in parts)),
        "longest_recovery_events": float(max((host.loader.longest_events for host in hosts), default=0)),
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
    lines, parts = links.links.values(), node.hosting.parts
    writers = [part.writer.figures for part in parts]
    deliveries = [part.deliverer.figures for part in parts]
    followed = sum((part.following.counters for part in parts), Counter[str]())
    return {
        "asks": node.region_client.asks,
        "answers_dropped": node.drops["reply_dropped"],
        "answers": node.region_client.answers,
        "journal_commits": sum(each.commits for each in writers),
        "journal_appends": sum(each.appends for each in writers),
        "journal_overlaps": sum(part.writer.overlapping for part in parts),
        "journal_events": sum(each.rows for each in writers),
        "journal_failures": sum(each.failures for each in writers),
        "messages_delivered": sum(each.delivered for each in deliveries),
        "messages_retried": sum(each.retried for each in deliveries),
        "messages_failed": sum(each.failures for each in deliveries),
        "messages_parked": sum(each.parked for each in deliveries),
        "followed_events": followed["events"],
        "follower_questions": followed["questions"],
        "follower_reads": followed["reads"],
        "followers_refused": followed["refused"],
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
    parts = node.hosting.parts
    found = {
        "journal_append_seconds": [part.writer.figures.append_seconds for part in parts],
        "journal_batch_rows": [part.writer.figures.batch_rows for part in parts],
        "home_seconds": [node.region_client.home_seconds],
        "timer_lateness_seconds": [part.deliverer.figures.lateness for part in parts],
    }
    if node.coordinator is not None:
        found["hand_off_pause_seconds"] = [node.coordinator.machine.timeline.pauses]
    return {name: _added(histograms) for name, histograms in found.items()}


def _added(histograms: Sequence[Histogram]) -> tuple[list[int], float]:
    counts = added([each.counts for each in histograms]) or histograms[0].counts
    return list(counts), sum(each.sum for each in histograms)


def _most(tops: Sequence[list[tuple[T, int]]]) -> list[tuple[T, int]]:
    """Return the first of several lists of the most frequent things."""
    if len(tops) == 1:
        return tops[0]
    together = [each for top in tops for each in top]
    together.sort(key=lambda each: -each[1])
    return together[:HOTTEST]


def _type(hosts: Sequence[TypeHost], now: float) -> TypeStats:
    """Return the figures of a type: the sums of its hosts, one for each journal."""
    meters = [host.meter for host in hosts]
    counters: Counter[str] = Counter()
    for host in hosts:
        counters.update(host.counters)
        counters.update(host.execution.counters)
        counters.update(host.execution.snapshots.counters)
        counters.update(host.execution.retention.counters)
        if host.remembering is not None:
            counters.update(
                {f"remembered_{name}": count for name, count in host.remembering.counters.items()}
            )
    failed = [host.entity_life.failed_starts.report() for host in hosts]
    slowest = sorted(
        (each for meter in meters for each in meter.slowest.top(HOTTEST, now)), key=lambda each: -each.seconds
    )
    hottest = _most([meter.hottest.top(HOTTEST) for meter in meters])
    return TypeStats(
        hosts[0].type.name,
        sum(len(host.shards) for host in hosts),
        sum(host.entities for host in hosts),
        sum(meter.commands for meter in meters),
        dict(counters),
        *_added([meter.latency for meter in meters]),
        [(entity, shard, count) for (entity, shard), count in hottest],
        sum(count for count, _ in failed),
        [each for _, some in failed for each in some],
        [SlowCommand(now - each.at, each.entity, each.command, each.seconds) for each in slowest[:HOTTEST]],
        _most([meter.shards.top(HOTTEST) for meter in meters]),
    )


def _troubles(node: NodeParts, now: float) -> list[Trouble]:
    """Return the troubles, the newest first."""
    found = [
        Trouble(now - mishap.at, host.type.name, mishap.entity, mishap.command, mishap.reason)
        for host in node.hosting.all_hosts()
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
    host = node.hosting.host_at(asked.type, asked.shard)
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
    hosts, parts = list(node.hosting.all_hosts()), node.hosting.parts
    appends = added([part.writer.figures.append_seconds.counts for part in parts]) or Histogram().counts
    latency = added([host.meter.latency.counts for host in hosts]) or Histogram().counts
    return Reading(
        node.ports.clock.now(),
        counts=(
            sum(host.meter.commands for host in hosts),
            sum(count for host in hosts for count in _failures(host)),
            sum(host.loader.entities for host in hosts),
            time.process_time(),
        ),
        histograms=(latency, list(appends)),
        levels=(
            sum(host.entities for host in hosts),
            sum(len(host.shards) for host in hosts),
            memory_bytes(),
        ),
        peaks=(
            node.node_ports.watch.take_lag_seconds(),
            sum(part.writer.waiting for part in parts),
            sum(part.deliverer.pending for part in parts),
        ),
    )


def read_types(node: NodeParts) -> dict[str, Reading]:
    """Return the figures of each type that the charts of its page show over time."""
    now = node.ports.clock.now()
    return {name: _read_type(node, node.hosting.hosts_of(name), now) for name in node.hosts}


def _read_type(node: NodeParts, hosts: Sequence[TypeHost], now: float) -> Reading:
    number = hosts[0].type_id
    return Reading(
        now,
        counts=(
            sum(host.meter.commands for host in hosts),
            sum(part.writer.figures.rows_of_types[number] for part in node.hosting.parts),
            sum(count for host in hosts for count in _failures(host)),
            sum(host.loader.entities for host in hosts),
        ),
        histograms=(added([host.meter.latency.counts for host in hosts]) or Histogram().counts,),
        levels=(
            sum(host.entities for host in hosts),
            sum(len(host.shards) for host in hosts),
        ),
        peaks=(),
    )


def _failures(host: TypeHost) -> Iterator[int]:
    for counters in (host.counters, host.execution.counters):
        yield from (counters[name] for name in FAILURES if name in counters)


def answer_trend(trends: Trends, asked: GetNodeTrend, now: float) -> NodeTrend:
    """Return a node's samples of the period that was asked for."""
    spans = trends.of_types.get(asked.type, {}) if asked.type else trends.spans
    trend = spans.get(asked.period)
    if trend is None or trend.began is None:
        return NodeTrend(asked.request, asked.period, now, now, [], {}, asked.type)
    return NodeTrend(
        asked.request,
        asked.period,
        now,
        trend.began,
        trend.at.tolist(),
        dict(trend.figures()),
        asked.type,
    )


def memory_bytes() -> int:
    """Return the process's present memory, or its peak if the system does not say."""
    try:
        return int(_STATM.read_text().split()[1]) * _PAGE_BYTES
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
