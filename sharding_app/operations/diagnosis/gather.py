"""Reads once all that the examinations judge; reports each step, and continues after a failure."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from django.conf import settings as django_settings
from django.core.checks import CheckMessage
from django.db import DatabaseError, connections

from sharding_app import checks
from sharding_app.adapters.django.database import QUERY_CANCELED, connecting_soon
from sharding_app.adapters.postgres.failed_database import failed_database
from sharding_app.entities.entity_type import EntityType
from sharding_app.operations import projections
from sharding_app.operations.connectivity import (
    UNREACHABLE,
    CannotReach,
    database_trouble,
    joined,
    transport_trouble,
)
from sharding_app.operations.diagnosis.look import (
    Clock,
    JournalLook,
    LayerLook,
    Limits,
    Look,
    RedisLook,
)
from sharding_app.operations.diagnosis.read_database import (
    read_clock,
    read_database,
    server_clock,
)
from sharding_app.operations.diagnosis.read_journal import merged, read_journal, shard_by_id
from sharding_app.operations.diagnosis.read_journal_databases import look_at_further
from sharding_app.operations.each_journal import Copies, ask, copies_among, name_of
from sharding_app.operations.snapshot import ClusterSnapshot, NodeAnswers, TypeRow, read_steadily
from sharding_app.ports.store import StoreUnavailable
from sharding_app.ports.transport import TransportError
from sharding_app.protocol.ids import Incarnation
from sharding_app.protocol.messages import NodeStats
from sharding_app.protocol.records import Member
from sharding_app.runtime.node.process import Process, WireRefused
from sharding_app.settings.load import get_problems, get_settings, layer_entries
from sharding_app.settings.schema import Settings
from sharding_app.wiring import entity_types, new_loop, placing

Say = Callable[[str], None]
RATE_SECONDS = 1.5
"""Minimum time between two readings of a clock."""
_NOT_NOW = ("sharding.E008",)
"""The system check of an unreachable database; D101 reports that already."""


def gather(say: Say) -> Look:
    """Read settings, servers, rows, nodes and journals."""
    say("reading the settings")
    if get_problems():
        return Look(checks=tuple(checks.check_settings()))
    settings = get_settings()
    found: list[CheckMessage] = [
        *checks.check_databases(), *checks.check_channel_layer(), *checks.check_types(), *checks.check_platform(),
        *checks.check_deployment(), *checks.check_views(), *checks.check_retention(), *checks.check_snapshots(),
        *checks.check_personal(),
    ]  # fmt: skip
    layer: LayerLook | None = None
    if settings.links != "direct":
        config = layer_entries().get(settings.channel_layer) or {}
        layer = LayerLook(
            alias=settings.channel_layer,
            backend=str(config.get("BACKEND", "")),
            config=dict(config.get("CONFIG") or {}),
        )
    look: dict[str, Any] = {
        "limits": Limits(
            lease_ttl_seconds=settings.lease_ttl_seconds,
            hand_off_timeout_seconds=settings.handoff_timeout_seconds,
            journal_connections=settings.journal_connections,
            journals=settings.further_journals,
            debug=django_settings.DEBUG,
            keys=len(settings.keys),
        ),
        "layer": layer,
        "declared_shards": {name: config.number_of_shards for name, (config, _) in placing().items()},
    }
    if all(each.id not in ("sharding.E002", "sharding.E016") for each in found):
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
        with connecting_soon(connections[alias]):
            connections[alias].ensure_connection()
        connections[alias].close()  # the role's idle timeout may be short
        found += checks.check_server(databases=[alias, lifeline, *settings.further_journals])
        look["database"] = read_database(alias, lifeline)
        if not look["database"].missing_migrations:
            say("reading the cluster's rows")
            look["cluster"] = read_steadily(alias)
            look["projections"] = tuple(projections.look_if_allowed() or ())
            if look["cluster"].journals:
                say("asking the journals")
                look["further"] = tuple(look_at_further())
    except DatabaseError as error:
        trouble = database_trouble(failed_database(error) or alias, error)
        look["database_trouble"], look["has_refused"] = str(trouble), trouble.returncode != UNREACHABLE
    finally:
        connections[alias].close()
    return look


async def _cluster(
    settings: Settings, cluster: ClusterSnapshot, layer: LayerLook | None, say: Say
) -> dict[str, Any]:
    """Ask the nodes and Redis; sample the journals between two readings of the clocks."""
    alias = settings.database
    layer_troubles: list[str] = []
    say("joining the cluster to ask its nodes")
    noisy = logging.getLogger("sharding.node")
    level = noisy.level
    noisy.setLevel(logging.CRITICAL)  # its messages become findings
    stack = AsyncExitStack()
    try:
        process = await stack.enter_async_context(joined())
    except CannotReach as error:
        found: dict[str, Any] = {_meaning(error): str(error), "journals": ()}
        try:
            found["journals"] = await asyncio.to_thread(_journals, settings, cluster, say)
        except DatabaseError as other:
            found.setdefault("database_trouble", str(database_trouble(alias, other)))
        return found
    finally:
        noisy.setLevel(level)
    try:
        first = await asyncio.to_thread(_read_clock, alias)
        early, before = await _stats(process, cluster.members)
        listening: set[Incarnation] = set()
        with _taking_note(settings, layer_troubles):
            listening = await _listening(process, settings)
        journals = await asyncio.to_thread(_journals, settings, cluster, say)
        say("asking the nodes")
        states = await process.queries.region_states(each.incarnation for each in cluster.members)
        pause = RATE_SECONDS if cluster.members else RATE_SECONDS / 5
        await asyncio.sleep(max(0.0, pause - (time.monotonic() - before[1])))
        late, after = await _stats(process, cluster.members)
        second = await asyncio.to_thread(_read_clock, alias)
        # A node that joined or left during the look is no stranger, and need not have answered.
        _, members = await process.ports.store.members()
        present = {each.incarnation for each in members}
        known = present | {each.incarnation for each in cluster.members}
        if layer is not None:
            with _taking_note(settings, layer_troubles):
                strangers = sorted((listening & await _listening(process, settings)) - known)
                layer = replace(layer, redis=await _redis(settings), strangers=tuple(strangers))
            layer = replace(layer, trouble=next(iter(layer_troubles), ""))
        here = {
            "refused_here": {name: process.why_refused(name) for name in process.refused},
            "seals_broken": process.ports.transport.statistics().get("seals_broken", 0),
        }
    except TransportError as error:
        return {"nodes_trouble": str(transport_trouble(error)), "journals": ()}
    except (StoreUnavailable, DatabaseError) as error:
        return {"database_trouble": str(database_trouble(alias, error)), "journals": ()}
    finally:
        await stack.aclose()
    names = {each.incarnation: each.name for each in cluster.members}
    return {
        "nodes": NodeAnswers(regions=states.answers, stats=late, silent=states.failed & present),
        **here,
        "journals": journals,
        "clocks": (_server_clock(first, second), *_node_clocks(names, early, before, late, after)),
        "layer": layer,
    }


@contextmanager
def _taking_note(settings: Settings, troubles: list[str]) -> Iterator[None]:
    """Keep an error of Redis for a finding of its own, where direct links go on without Redis."""
    try:
        yield
    except TransportError as error:
        if settings.links != "auto":
            raise
        troubles.append(" ".join(str(error).split()).rstrip("."))


def _meaning(error: CannotReach) -> str:
    """Return the field that tells why this process could not join."""
    if isinstance(error.__cause__, WireRefused):
        return "refused"
    return "nodes_trouble" if isinstance(error.__cause__, TransportError) else "database_trouble"


def _journals(settings: Settings, cluster: ClusterSnapshot, say: Say) -> tuple[JournalLook, ...]:
    known = {each.name: each for each in entity_types(settings)}
    found: list[JournalLook] = []
    try:
        copies = copies_among(cluster.journal_names)
        for each in cluster.types:
            say(f"sampling the journal of {each.config.name}")
            one = known.get(each.config.name)
            say_of = partial(_sample, each, one, copies)
            try:
                asked = ask(cluster.journal_names, say_of)
            except DatabaseError as error:
                if getattr(error.__cause__, "sqlstate", None) != QUERY_CANCELED:
                    raise
                # The other types lie in the same tables: their reads would take as long.
                rest = cluster.types[len(found) :]
                found += [JournalLook(type=row.config.name, installed=True, is_unread=True) for row in rest]
                break
            found.append(merged([*asked.found.values()]))
    finally:
        connections[settings.database].close()
    return tuple(found)


def _sample(row: TypeRow, known: EntityType | None, copies: Copies, alias: str) -> JournalLook:
    name = name_of(alias)

    def lies_here(entity: str) -> bool:
        try:
            shard = shard_by_id(row.config, known, entity)
        except Exception:  # noqa: BLE001  (the user's own extractor, which the sample judges)
            return True
        return shard is None or copies.lies_in(name, row.number, entity, shard)

    return read_journal(alias, row.number, row.config, known, lies_here=lies_here)


_Span = tuple[float, float]
"""Times before and after the request, by this machine's monotonic clock."""


async def _stats(
    process: Process, members: Sequence[Member]
) -> tuple[Mapping[Incarnation, NodeStats], _Span]:
    began = time.monotonic()
    found = await process.queries.stats(each.incarnation for each in members)
    return found, (began, time.monotonic())


async def _listening(process: Process, settings: Settings) -> set[Incarnation]:
    if settings.links == "direct":
        return set()
    from sharding_app.adapters.channels import redis_facts

    prefix = process.channel_of("")
    names = await redis_facts.listening(settings.channel_layer, f"{prefix}n-*")
    return {name.removeprefix(prefix) for name in names}


async def _redis(settings: Settings) -> tuple[RedisLook, ...]:
    from sharding_app.adapters.channels import redis_facts

    facts = await redis_facts.redis_facts(settings.channel_layer)
    return tuple(RedisLook(**each._asdict()) for each in facts)


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
    """Return the clocks of the nodes: wall clock and lease clock are among their gauges."""
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
