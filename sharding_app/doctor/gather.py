"""Looks once at everything that the examinations judge. Says at each step what it does, and goes on past what fails."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.conf import settings as django_settings
from django.core.checks import CheckMessage
from django.db import DatabaseError, connections

from sharding_app import checks
from sharding_app.adapters.channels import examination
from sharding_app.bootstrap import entity_types, new_loop
from sharding_app.conf import get_problems, get_settings
from sharding_app.core.ids import Incarnation
from sharding_app.core.messages import NodeStats
from sharding_app.core.records import Member
from sharding_app.doctor.look import (
    Clock,
    ClusterLook,
    JournalLook,
    LayerLook,
    Limits,
    Look,
    NodesLook,
    RedisLook,
)
from sharding_app.doctor.read_database import read_clock, read_cluster, read_database, server_clock
from sharding_app.doctor.read_journal import read_journal
from sharding_app.knobs import Settings
from sharding_app.management.reach import CannotReach, database_trouble, joined, transport_trouble
from sharding_app.ports.store import StoreUnavailable
from sharding_app.ports.transport import TransportError
from sharding_app.runtime.process import Process, WireRefused

Say = Callable[[str], None]
RATE_SECONDS = 1.5
"""How far apart two readings of a clock are, at least."""
_NOT_NOW = ("sharding.E008",)
"""That the database cannot be reached is said once, by D101."""


def gather(say: Say) -> Look:
    """Look at settings, servers, rows, nodes and journals."""
    say("reading the settings")
    if get_problems():
        return Look(checks=tuple(checks.check_settings()))
    settings = get_settings()
    found: list[CheckMessage] = [
        *checks.check_databases(), *checks.check_channel_layer(), *checks.check_types(), *checks.check_platform(),
        *checks.check_deployment(),
    ]  # fmt: skip
    backend, config = examination.configuration(settings.channel_layer)
    look: dict[str, Any] = {
        "limits": Limits(
            lease_ttl_seconds=settings.lease_ttl_seconds,
            hand_off_timeout_seconds=settings.handoff_timeout_seconds,
            debug=django_settings.DEBUG,
            keys=len(settings.keys),
        ),
        "layer": LayerLook(alias=settings.channel_layer, backend=backend, config=config),
    }
    if all(str(each.id) != "sharding.E002" for each in found):
        look.update(_database(settings, found, say))
    look["checks"] = tuple(each for each in found if each.id not in _NOT_NOW)
    if "cluster" in look:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            look.update(runner.run(_cluster(settings, look["cluster"], look["layer"], say)))
    return Look(**look)


def _database(settings: Settings, found: list[CheckMessage], say: Say) -> dict[str, Any]:
    say("asking PostgreSQL about itself")
    alias, lifeline = settings.database, settings.lifeline_database
    look: dict[str, Any] = {}
    try:
        connections[alias].ensure_connection()
        connections[alias].close()  # a role may end what does nothing for a moment
        found += checks.check_server(databases=[alias, lifeline])
        look["database"] = read_database(alias, lifeline)
        if not look["database"].missing_migrations:
            say("reading the cluster's rows")
            look["cluster"] = read_cluster(alias)
    except DatabaseError as error:
        look["database_trouble"] = str(database_trouble(alias, error))
    finally:
        connections[alias].close()
    return look


async def _cluster(settings: Settings, cluster: ClusterLook, layer: LayerLook, say: Say) -> dict[str, Any]:
    """Ask the nodes and Redis; sample the journals between two readings of the clocks."""
    alias = settings.database
    say("joining the cluster to ask its nodes")
    noisy = logging.getLogger("sharding.node")
    level = noisy.level
    noisy.setLevel(logging.CRITICAL)  # what it would say is a finding
    try:
        process = await joined()
    except CannotReach as error:
        journals = await asyncio.to_thread(_journals, settings, cluster, say)
        return {_meaning(error): str(error), "journals": journals}
    finally:
        noisy.setLevel(level)
    try:
        first = await asyncio.to_thread(_read_clock, alias)
        early, before = await _stats(process, cluster.members)
        listening = await _listening(process, settings)
        journals = await asyncio.to_thread(_journals, settings, cluster, say)
        say("asking the nodes")
        states = await process.region_states.ask(each.incarnation for each in cluster.members)
        pause = RATE_SECONDS if cluster.members else RATE_SECONDS / 5
        await asyncio.sleep(max(0.0, pause - (time.monotonic() - before[1])))
        late, after = await _stats(process, cluster.members)
        second = await asyncio.to_thread(_read_clock, alias)
        # Who joined or left meanwhile is no stranger, and need not have answered.
        _, members = await process.ports.store.members()
        present = {each.incarnation for each in members}
        known = present | {each.incarnation for each in cluster.members}
        strangers = sorted((listening & await _listening(process, settings)) - known)
        redis = [
            RedisLook(**each._asdict()) for each in await examination.redis_facts(settings.channel_layer)
        ]
        nodes = NodesLook(
            answers=states.answers,
            stats=late,
            silent=states.failed & present,
            refused_here={name: process.why_refused(name) for name in process.refused},
            seals_broken=_seals_broken(process),
        )
    except TransportError as error:
        return {"nodes_trouble": str(transport_trouble(error)), "journals": ()}
    except (StoreUnavailable, DatabaseError) as error:
        return {"database_trouble": str(database_trouble(alias, error)), "journals": ()}
    finally:
        await process.close()
    names = {each.incarnation: each.name for each in cluster.members}
    return {
        "nodes": nodes,
        "journals": journals,
        "clocks": (_server_clock(first, second), *_node_clocks(names, early, before, late, after)),
        "layer": LayerLook(
            alias=layer.alias, backend=layer.backend, config=layer.config, redis=tuple(redis), strangers=tuple(strangers)
        ),
    }  # fmt: skip


def _meaning(error: CannotReach) -> str:
    """Which of the look's troubles it is that this process could not join."""
    if isinstance(error.__cause__, WireRefused):
        return "refused"
    return "nodes_trouble" if isinstance(error.__cause__, TransportError) else "database_trouble"


def _seals_broken(process: Process) -> int:
    return process.ports.transport.statistics().get("seals_broken", 0)


def _journals(settings: Settings, cluster: ClusterLook, say: Say) -> tuple[JournalLook, ...]:
    known = {each.name: each for each in entity_types(settings)}
    found = []
    try:
        for config in cluster.types:
            say(f"sampling the journal of {config.name}")
            number = cluster.numbers[config.name]
            found.append(read_journal(settings.database, number, config, known.get(config.name)))
    finally:
        connections[settings.database].close()
    return tuple(found)


_Span = tuple[float, float]
"""Before and after the question, by this machine's monotonic clock."""


async def _stats(
    process: Process, members: Sequence[Member]
) -> tuple[Mapping[Incarnation, NodeStats], _Span]:
    began = time.monotonic()
    found = await process.questions.stats(each.incarnation for each in members)
    return found, (began, time.monotonic())


async def _listening(process: Process, settings: Settings) -> set[Incarnation]:
    prefix = process.channel_of("")
    names = await examination.listening(settings.channel_layer, f"{prefix}n-*")
    return {name.removeprefix(prefix) for name in names}


def _read_clock(alias: str) -> tuple[float, float, float]:
    try:
        return read_clock(alias)
    finally:
        connections[alias].close()


def _server_clock(first: tuple[float, float, float], second: tuple[float, float, float]) -> Clock:
    clock = server_clock(second)
    ours = (second[1] + second[2] - first[1] - first[2]) / 2
    blur = (second[2] - second[1] + first[2] - first[1]) / 2
    return Clock(
        who=clock.who, ahead_seconds=clock.ahead_seconds, uncertain_seconds=clock.uncertain_seconds,
        rate=(second[0] - first[0]) / ours, rate_uncertain=blur / ours,
    )  # fmt: skip


def _node_clocks(
    names: Mapping[Incarnation, str],
    early: Mapping[Incarnation, NodeStats],
    before: _Span,
    late: Mapping[Incarnation, NodeStats],
    after: _Span,
) -> list[Clock]:
    """Nodes send their wall clock among their gauges, and the clock that their leases go by."""
    found = []
    now = time.time() - time.monotonic()
    for node, stats in late.items():
        wall = stats.gauges.get("wall_seconds")
        if wall is None or node not in early:
            continue
        ours = (sum(after) - sum(before)) / 2
        blur = (after[1] - after[0] + before[1] - before[0]) / 2
        found.append(
            Clock(
                who=f"node {names.get(node, node)}", ahead_seconds=wall - (now + sum(after) / 2),
                uncertain_seconds=(after[1] - after[0]) / 2, rate=(stats.clock - early[node].clock) / ours,
                rate_uncertain=blur / ours,
            )
        )  # fmt: skip
    return found
