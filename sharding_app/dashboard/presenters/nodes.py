"""Nodes: what their rows say, and what they say themselves."""

from collections import Counter
from collections.abc import Mapping

from django.utils.translation import gettext as _

from sharding_app.dashboard import words
from sharding_app.dashboard.presenters.homes import View, homes
from sharding_app.operations.cache import Look
from sharding_app.protocol.records import Member


def node_rows(look: Look) -> list[View]:
    """One row for each node, oldest first."""
    shown = homes(look)
    every = sum(each.shards for each in look.cluster.shards)
    at = {each.incarnation: look.cluster.shards_at(each.incarnation) for each in look.cluster.members}
    leader = look.cluster.coordinator.incarnation
    return [
        {
            **_node(each, look, shown[each.incarnation], at[each.incarnation], leader),
            "shard_goal": every,
            "shard_done": every - at[each.incarnation],
        }
        for each in look.cluster.members
    ]


def _node(member: Member, look: Look, home: View, shards: int, leader: str | None) -> View:
    answer = look.stats.get(member.incarnation)
    figures = look.by_node.get(member.incarnation)
    gauges: Mapping[str, float] = {} if answer is None else answer.gauges
    late = answer is None
    state, tone = _state(member, late=late)
    return {
        **home,
        "state": state,
        "tone": tone,
        "late": late,
        "coordinates": member.incarnation == leader,
        "age": member.age,
        "host": member.host,
        "pid": member.pid,
        "roles": ", ".join(member.roles) or words.NOTHING,
        "version": member.app_version or words.NOTHING,
        "since": words.age(look.cluster.joined.get(member.incarnation), look.cluster.now),
        "locks": f"{member.locks} / 2",
        "shards": words.count(shards),
        "shard_count": shards,
        "drained": member.state == "leaving",
        "entities": words.count(gauges.get("entities")),
        "commands": words.rate(figures.commands if figures else None),
        "latency": f"{words.duration(figures.p50)} / {words.duration(figures.p99)}"
        if figures
        else words.NOTHING,
        "failures": words.rate(figures.failures if figures else None),
        "cpu": words.percent(figures.cpu if figures else None),
        "memory": words.size(gauges.get("memory_bytes")),
        "lag": words.duration(gauges.get("loop_lag_seconds")),
        "lease": words.duration(gauges.get("lease_seconds")),
    }


def _state(member: Member, *, late: bool) -> tuple[str, str]:
    if member.deaf:
        return _("deaf"), "bad"
    if member.state == "joining":
        return _("joining"), "busy"
    if member.locks < 2:
        return _("suspect"), "bad"
    if member.state == "leaving":
        return _("handing over"), "busy"
    return (_("up, answers late"), "warn") if late else (_("up"), "good")


def hosted(look: Look, incarnation: str) -> list[View]:
    """The types that a node hosts, and those that it may not host."""
    member = next(each for each in look.cluster.members if each.incarnation == incarnation)
    numbers = {each.config.name: each.number for each in look.cluster.types}
    figures = look.by_node.get(incarnation)
    region = look.regions.get(incarnation)
    shards: Counter[str] = Counter()
    for each in look.cluster.shards:
        if each.home == incarnation:
            shards[each.type] += each.shards
    refused = {} if region is None else region.refused
    found = []
    for name in sorted({*member.types, *refused}):
        one = figures.types.get(name) if figures else None
        found.append(
            {
                "name": name,
                "number": numbers.get(name),
                "shards": words.count(shards[name]),
                "entities": words.count(one.entities if one else None),
                "commands": words.rate(one.commands if one else None),
                "failures": words.rate(one.failures if one else None),
                "p50": words.duration(one.p50 if one else None),
                "p99": words.duration(one.p99 if one else None),
                "refused": refused.get(name, ""),
            }
        )
    return found


def details(look: Look, incarnation: str) -> list[tuple[str, str]]:
    """A node's own figures, by name."""
    answer = look.stats.get(incarnation)
    if answer is None:
        return []
    gauges, counters, figures = answer.gauges, answer.counters, look.by_node[incarnation]
    return [
        (_("Commands / s"), words.rate(figures.commands)),
        (_("Failures / s"), words.rate(figures.failures)),
        (_("Latency p50 / p99"), f"{words.duration(figures.p50)} / {words.duration(figures.p99)}"),
        (_("Journal appends / s"), words.rate(figures.appends)),
        (_("Events / s"), words.rate(figures.events)),
        (_("Events in an append, p50"), words.count(figures.batch_p50)),
        (
            _("Append p50 / p99"),
            f"{words.duration(figures.append_p50)} / {words.duration(figures.append_p99)}",
        ),
        (_("Commits that wait"), words.count(gauges.get("journal_waiting"))),
        (_("Commits that failed"), words.count(counters.get("journal_failures"))),
        (_("Processor"), words.percent(figures.cpu)),
        (_("Memory"), words.size(gauges.get("memory_bytes"))),
        (_("Event loop late by"), words.duration(gauges.get("loop_lag_seconds"))),
        (_("Event loop late by, at most"), words.duration(gauges.get("worst_loop_lag_seconds"))),
        (_("Handlers that held the loop"), words.count(counters.get("loop_blocked"))),
        (_("Lease valid for"), words.duration(gauges.get("lease_seconds"))),
        (_("Lifeline sessions lost"), words.count(counters.get("lifeline_losses"))),
        (_("Links"), words.count(gauges.get("links"))),
        (
            _("Queued on links"),
            f"{words.count(gauges.get('link_queued_messages'))}, {words.size(gauges.get('link_queued_bytes'))}",
        ),
        (_("Round trip on links, longest"), words.duration(gauges.get("link_round_trip_seconds"))),
        (_("Frames sent again"), words.count(counters.get("link_frames_resent"))),
        (_("Commands under way from here"), words.count(gauges.get("pending_asks"))),
        (_("Bytes buffered for them"), words.size(gauges.get("buffered_bytes"))),
    ]
