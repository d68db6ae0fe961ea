"""Entity types, singletons and workers: how many of them live where, and how busy they are."""

import dataclasses
from collections import Counter
from datetime import UTC

from django.utils.translation import gettext as _

from sharding_app.dashboard import words
from sharding_app.dashboard.presenters.homes import View, homes
from sharding_app.entities.registry import registry
from sharding_app.operations.cache import Look
from sharding_app.operations.rates import TypeFigures
from sharding_app.operations.snapshot import TypeRow
from sharding_app.protocol.allocation.singleton import SINGLETON
from sharding_app.protocol.allocation.workers import WORKERS
from sharding_app.protocol.numbering import Numbering

HOMES_SHOWN = 24
"""The row of a type lists up to 24 nodes with their shards. For more nodes it has a range."""


def type_rows(look: Look) -> list[View]:
    """One row for each entity type; singletons and workers have pages of their own."""
    apart = SINGLETON, WORKERS
    return [_type(each, look) for each in look.cluster.types if not each.config.name.startswith(apart)]


def one(look: Look, row: TypeRow) -> View:
    """A single type, as a row of the table shows it."""
    return _type(row, look)


def settings(row: TypeRow) -> list[tuple[str, str]]:
    """What is equal on all nodes, and what the code that is installed here says of the type."""
    config = row.config
    found = [
        (_("Kind"), config.kind.replace("_", " ")),
        (_("Shards"), words.count(config.numbering.total)),
        *_resize(config.numbering),
        (_("From id to shard"), config.extractor),
        (_("Hash"), config.hash_version),
        (_("Role"), config.role or words.NOTHING),
        (_("Store"), config.store_mode),
        (_("Known since"), f"{row.registered.astimezone(UTC):%Y-%m-%d %H:%M} UTC"),
    ]
    known = registry.all().get(config.name)
    if known is None:
        return [*found, (_("Code"), _("not installed here"))]
    said = [
        (each.name.replace("_", " "), str(getattr(known.settings, each.name)))
        for each in dataclasses.fields(known.settings)
        if getattr(known.settings, each.name) is not None and each.name not in ("role", "number_of_shards")
    ]
    return [*found, (_("Code"), f"{known.cls.__module__}.{known.cls.__qualname__}"), *said]


def _resize(numbering: Numbering) -> list[tuple[str, str]]:
    """How far a resize of the type is, if one is under way."""
    if not numbering.resizing:
        return []
    text = _("{shards} → {wanted} shards, {done} of {groups} groups are done").format(
        shards=words.count(numbering.shards), wanted=words.count(numbering.wanted),
        done=words.count(numbering.done), groups=words.count(numbering.groups),
    )  # fmt: skip
    return [(_("Resize"), text)]


def _type(row: TypeRow, look: Look) -> View:
    shown = homes(look)
    groups = look.cluster.shards_of(row.config.name)
    figures = look.total.types.get(row.config.name)
    placed: Counter[str | None] = Counter()
    for each in groups:
        if each.home in shown:
            placed[each.home] += each.shards
    lost = sum(each.shards for each in groups if each.home not in shown)
    many = len(placed) > HOMES_SHOWN
    return {
        "number": row.number,
        "name": row.config.name,
        "kind": row.config.kind.replace("_", " "),
        "role": row.config.role or words.NOTHING,
        "shards": words.count(row.config.numbering.total),
        "placed": words.count(sum(placed.values())),
        "unused": words.count(row.config.numbering.total - sum(each.shards for each in groups)),
        "moving": words.count(sum(each.shards for each in groups if each.step == "handoff")),
        "lost": lost,
        "shares": [
            {**home, "count": placed[home["incarnation"]], "text": words.count(placed[home["incarnation"]])}
            for home in shown.values()
            if placed[home["incarnation"]] and not many
        ],
        "spread": _spread(placed) if many else "",
        **_figures(figures),
    }


def _spread(placed: Counter[str | None]) -> str:
    """Tell how evenly the shards lie on many nodes."""
    return _("{nodes} nodes, {least} to {most} each").format(
        nodes=words.count(len(placed)),
        least=words.count(min(placed.values())),
        most=words.count(max(placed.values())),
    )


def _figures(figures: TypeFigures | None) -> View:
    found = figures or TypeFigures()
    return {
        "entities": words.count(found.entities if figures else None),
        "commands": words.rate(found.commands),
        "failures": words.rate(found.failures),
        "p50": words.duration(found.p50),
        "p99": words.duration(found.p99),
    }


def singleton_rows(look: Look) -> list[View]:
    """Singletons are types of one shard: where each of them runs."""
    shown = homes(look)
    found = []
    for each in look.cluster.types:
        if not each.config.name.startswith(SINGLETON):
            continue
        shard = next(iter(look.cluster.shards_of(each.config.name)), None)
        figures = look.total.types.get(each.config.name)
        home = shown.get(shard.home or "") if shard else None
        running = bool(figures and figures.entities)
        found.append(
            {
                "number": each.number,
                "name": each.config.name.removeprefix(SINGLETON),
                "type": each.config.name,
                "role": each.config.role or words.NOTHING,
                "home": home,
                "epoch": shard.epoch if shard else words.NOTHING,
                "state": _("runs") if running else _("not started") if shard is None else _("does not run"),
                "tone": "good" if running else "busy" if shard is None else "bad",
                **_figures(figures),
            }
        )
    return found


def worker_rows(look: Look) -> list[View]:
    """Sets of workers are types of one shard for each worker: where they run, and how many."""
    found = []
    for each in look.cluster.types:
        if each.workers is None:
            continue
        figures = look.total.types.get(each.config.name)
        running = figures.entities if figures else 0
        if each.workers.rescaling:
            state, tone = _("rescaling to {}").format(each.workers.wanted), "busy"
        elif running < each.workers.workers:
            state, tone = _("{} do not run").format(each.workers.workers - running), "bad"
        else:
            state, tone = _("runs"), "good"
        found.append(
            {
                **_type(each, look),
                "name": each.config.name.removeprefix(WORKERS),
                "workers": each.workers.workers,
                "running": running,
                "revision": each.workers.revision,
                "state": state,
                "tone": tone,
            }
        )
    return found


def hottest(look: Look, type_name: str) -> list[View]:
    """Entities that get most commands of late, and what part of all that the table is about."""
    figures = look.total.types.get(type_name)
    found = figures.hottest if figures else ()
    total = sum(count for *_, count in found) or 1
    return [
        {
            "entity": entity,
            "shard": shard,
            "share": words.percent(count / total),
            "width": round(100 * count / total, 1),
        }
        for entity, shard, count in found
    ]
