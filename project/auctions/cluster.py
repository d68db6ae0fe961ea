"""What the page of the cluster shows: its nodes and shards, the bids, the latest decisions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from project.auctions.load import CHART_SECONDS
from sharding_app.dashboard.presenters.homes import homes
from sharding_app.dashboard.presenters.nodes import node_rows
from sharding_app.dashboard.presenters.trouble import decision_rows
from sharding_app.models import Decision
from sharding_app.operations.cache import Look
from sharding_app.processes.control import NodeProcess

View = dict[str, Any]

COLOURS = 8
EVENTS = 12
READ = 60
"""Lines of the timeline that are read, to learn the names of nodes that have gone."""
CHART_HEIGHT = 40
_INCARNATION = re.compile(r"\bn-[0-9a-z]+\b")
_SHARDS = re.compile(r"^([\d, -]+) from")


def nodes(look: Look, processes: Sequence[NodeProcess]) -> list[View]:
    """Return the nodes by name: what their rows say, and what the process that started them knows.

    A process that starts has no row yet, and a row may outlive its process for a moment.
    """
    own = {(each.name, each.pid): each for each in processes}
    found = [_node(row, own.pop((row["name"], row["pid"]), None)) for row in node_rows(look)]
    for process in own.values():
        tone = "bad" if process.state == "ended" else "busy"
        found.append(
            {"name": process.name, "pid": process.pid, "state": process.state, "tone": tone, "ours": True}
        )
    return sorted(found, key=lambda node: (len(node["name"]), node["name"]))


def _node(row: View, process: NodeProcess | None) -> View:
    shown = ("name", "pid", "state", "tone", "coordinates", "shards", "entities", "commands")
    node = {key: row[key] for key in shown} | {"colour": row["colour"] % COLOURS, "ours": process is not None}
    if process is not None and process.state == "frozen":
        node |= {"state": f"frozen, goes on in {process.seconds:.0f} s", "tone": "bad"}
    elif process is not None and process.state == "ended":
        node |= {"state": "ended", "tone": "bad"}
    return node


def shards(look: Look) -> list[View]:
    """Return a bar for each type: how many of its shards are at which node. Shards that no message
    has needed yet are at none.
    """
    shown = homes(look)
    found = []
    for each in sorted(look.cluster.types, key=lambda row: row.config.name):
        groups = look.cluster.shards_of(each.config.name)
        placed = [
            (home, sum(group.shards for group in groups if group.step == "home" and group.home == node))
            for node, home in shown.items()
        ]
        at_home = [(home["name"], home["colour"] % COLOURS, number) for home, number in placed if number]
        total = sum(group.shards for group in groups)
        moving = total - sum(number for *_, number in at_home)
        parts: list[tuple[object, int]] = [(colour, number) for _, colour, number in at_home]
        segments, x = [], 0.0
        for colour, number in [*parts, *([("way", moving)] if moving else [])]:
            width = 100 * number / total
            segments.append({"x": f"{x:.2f}", "width": f"{width:.2f}", "colour": colour})
            x += width
        words = [f"{number} at {name}" for name, _, number in at_home]
        words += [f"{moving} on the way"] if moving else []
        if total:
            found.append({"name": _title(each.config.name), "segments": segments, "text": ", ".join(words)})
    return found


def _title(type_name: str) -> str:
    kind, *rest = type_name.split(":")
    if kind == "singleton":
        return f"{rest[0]} (singleton)"
    return f"{rest[1]} (projection)" if type_name.startswith("workers:projection:") else type_name


def chart(per_second: Sequence[int]) -> View:
    """Return a bar for each second, the present one at the right."""
    top = max(*per_second, 1)
    bars = [
        {"x": number, "y": f"{CHART_HEIGHT - height:.1f}", "height": f"{height:.1f}"}
        for number, bids in enumerate(per_second)
        if (height := CHART_HEIGHT * bids / top)
    ]
    return {"bars": bars, "top": top, "width": CHART_SECONDS, "height": CHART_HEIGHT}


def events(look: Look) -> list[View]:
    """Return the latest lines of the timeline. First homes of shards are left out."""
    rows = list(Decision.objects.exclude(action="shards_placed").order_by("-id")[:READ])
    # A line about a node names it first.
    names = {each.subject: each.detail.partition(",")[0] for each in rows if each.action.startswith("node_")}
    lines = decision_rows(rows[:EVENTS], homes(look), look.cluster.now)

    def named(text: str) -> str:
        return _INCARNATION.sub(lambda found: names.get(found[0], found[0]), text)

    for line in lines:
        about = line["home"]["name"] if line["home"] else _title(named(line["subject"]))
        told = _SHARDS.sub(_counted, named(line["detail"]))
        line |= {"about": about, "told": "" if told == about else told}
    return lines


def _counted(found: re.Match[str]) -> str:
    """Tell how many shards moved, instead of their numbers such as 1-4,7."""
    ends = [each.partition("-") for each in found[1].split(",")]
    number = sum(int(last or first) - int(first) + 1 for first, _, last in ends)
    return f"{number} shard{'s' if number > 1 else ''} from"
