"""The map of a type's shards: one cell for each, with its home, its size and its state."""

from collections import Counter
from collections.abc import Mapping, Sequence

from django.utils.html import escape
from django.utils.safestring import mark_safe
from django.utils.translation import gettext as _

from sharding_app.dashboard import words
from sharding_app.dashboard.presenters.homes import View, homes
from sharding_app.operations.cache import Look
from sharding_app.operations.each_journal import journal_name
from sharding_app.operations.snapshot import TypeRow, read_closed, read_shards
from sharding_app.protocol.ids import Incarnation, ShardId
from sharding_app.protocol.records import ShardRow

LEVELS = 5


def shard_sizes(look: Look, type_name: str, rows: Mapping[ShardId, ShardRow]) -> dict[int, int]:
    """How many entities each of these shards has in memory, as far as its home has answered for the
    epoch that the row shows.
    """
    epochs = {shard: (row.home, row.epoch) for shard, row in rows.items()}
    return {
        shard: entities
        for node, answer in look.regions.items()
        for region in answer.regions
        if region.type == type_name
        for shard, epoch, entities in zip(region.shards, region.epochs, region.entities, strict=True)
        if epochs.get(shard) == (node, epoch)
    }


def shard_map(look: Look, row: TypeRow, window: range) -> list[View]:
    """One cell for each shard of a window, in their order. The level tells its size, relative to
    the largest of all.
    """
    shown = homes(look)
    known = read_shards(row.number, window)
    sizes = shard_sizes(look, row.config.name, known)
    stopped = any(each.step == "stopped" for each in known.values())
    closed = read_closed(row.number, window) if stopped else {}
    most = max(
        (
            entities
            for answer in look.regions.values()
            for region in answer.regions
            if region.type == row.config.name
            for entities in region.entities
        ),
        default=0,
    )
    said = {
        "unused": _("never used"),
        "stopped": _("stopped"),
        "lost": _("its home is gone"),
        "handoff": _("handing off"),
        "home": _("at home"),
    }
    moves = {
        shard: {**said, "stopped": _("closed for a move to %(journal)s") % {"journal": journal_name(target)}}
        for shard, target in closed.items()
    }
    several = len(look.cluster.journal_names) > 1
    return [
        _cell(shard, known.get(shard), shown, sizes.get(shard), most, moves.get(shard, said), several=several)
        for shard in window
    ]


def _cell(
    shard: int,
    row: ShardRow | None,
    shown: Mapping[Incarnation, View],
    entities: int | None,
    most: int,
    said: Mapping[str, str],
    *,
    several: bool,
) -> View:
    home = shown.get(row.home or "") if row is not None else None
    if row is None:
        state = "unused"
    elif row.step == "stopped":
        state = "stopped"
    elif home is None:
        state = "lost"
    else:
        state = "handoff" if row.step == "handoff" else "home"
    return {
        "shard": shard,
        "state": state,
        "text": said[state],
        "home": home,
        "letter": home["letter"] if home else "",
        "colour": home["colour"] if home else -1,
        "level": level(entities, most),
        "entities": entities,
        "epoch": row.epoch if row is not None else None,
        "journal": _journal(row) if several else "",
    }


def _journal(row: ShardRow | None) -> str:
    """The journal of a shard, by its alias. One that was never used lies in none."""
    return words.NOTHING if row is None else journal_name(row.journal)


def level(entities: int | None, most: int) -> int:
    """0 for empty or unknown, else 1 to 5 by size."""
    if not entities or not most:
        return 0
    return min(LEVELS, 1 + (entities * LEVELS - 1) // most)


def balance(look: Look, row: TypeRow) -> list[View]:
    """The legend of a map: each node with its share of the type's shards, and with its entities.

    All shards are counted, also where the map shows some of them.
    """
    shown = homes(look)
    shards: Counter[str] = Counter()
    for group in look.cluster.shards_of(row.config.name):
        if group.home in shown:
            shards[group.home] += group.shards
    entities = {
        node: sum(sum(region.entities) for region in answer.regions if region.type == row.config.name)
        for node, answer in look.regions.items()
    }
    total = max(1, sum(shards.values()))
    return [
        {
            **home,
            "shards": words.count(shards[home["incarnation"]]),
            "share": words.percent(shards[home["incarnation"]] / total),
            "width": round(100 * shards[home["incarnation"]] / total, 1),
            "entities": words.count(entities.get(home["incarnation"], 0)),
        }
        for home in shown.values()
    ]


def states(cells: Sequence[View]) -> str:
    """The map in a sentence, for those who do not see it."""
    counted = Counter(cell["text"] for cell in cells)
    by_home = Counter(cell["home"]["name"] for cell in cells if cell["home"])
    where = ", ".join(f"{name} {words.count(number)}" for name, number in sorted(by_home.items()))
    how = ", ".join(f"{words.count(number)} {text}" for text, number in counted.most_common())
    return f"{how}. {where}" if where else how


def short(cell: View) -> list[object]:
    """What the live picture needs of a cell."""
    home = cell["home"]
    return [
        cell["shard"],
        cell["letter"],
        cell["colour"],
        cell["level"],
        cell["state"],
        cell["entities"],
        cell["epoch"],
        home["name"] if home else "",
        cell["text"],
        cell["journal"],
    ]


SIDE, GAP = 20, 2


def columns(cells: int) -> int:
    """A map is about twice as wide as it is high, and a round number of cells wide."""
    if cells <= 10:
        return max(1, cells)
    return next((width for width in (10, 20, 25, 40, 50) if width * width >= 2 * cells), 50)


def drawing(cells: Sequence[View]) -> View:
    """Where each cell stands in the picture."""
    across = columns(len(cells))
    down = -(-len(cells) // across)
    step = SIDE + GAP
    return {
        "width": across * step + GAP,
        "height": down * step + GAP,
        "side": SIDE,
        "svg": mark_safe(  # noqa: S308 - whole numbers, letters and words of ours only
            "".join(
                _square(cell, GAP + number % across * step, GAP + number // across * step)
                for number, cell in enumerate(cells)
            )
        ),
    }


def _square(cell: View, x: int, y: int) -> str:
    return (
        f'<g class="sh-cell c{cell["colour"]} l{cell["level"]} s-{cell["state"]}" data-shard="{cell["shard"]}"'
        f' transform="translate({x} {y})"><rect width="{SIDE}" height="{SIDE}" rx="3"/>'
        f'<text x="{SIDE // 2}" y="{SIDE // 2 + 4}">{SIGNS.get(cell["state"], cell["letter"])}</text></g>'
    )


SIGNS = {"lost": "!", "stopped": "□", "unused": ""}
"""What stands in a cell in the place of its home's letter."""


def windows(every: int, first: int, size: int) -> list[View]:
    """Parts of a map that is too large for one picture."""
    if every <= size:
        return []
    return [
        {"first": start, "text": f"{start:,}–{min(every, start + size) - 1:,}", "here": start == first}
        for start in range(0, every, size)
    ]


def table(cells: Sequence[View], base: str, number: int) -> str:
    """The rows of the map's table: the same as the picture, for everybody who does not see it."""
    address = escape(base)
    return mark_safe(  # noqa: S308 - what is not ours is escaped
        "".join(
            f'<tr data-shard="{cell["shard"]}"><th scope="row" class="num">'
            f'<a href="{address}types/{number}/shards/{cell["shard"]}/">{cell["shard"]}</a></th>'
            f"<td>{_home_text(cell)}</td><td>{escape(cell['text'])}</td>"
            f'<td class="num">{_number(cell["entities"])}</td><td class="num">{_number(cell["epoch"])}</td>'
            f"{_journal_cell(cell)}</tr>"
            for cell in cells
        )
    )


def _home_text(cell: View) -> str:
    return f"{escape(cell['letter'])} {escape(cell['home']['name'])}" if cell["home"] else words.NOTHING


def _journal_cell(cell: View) -> str:
    """Where there are several journals."""
    return f"<td>{escape(cell['journal'])}</td>" if cell["journal"] else ""


def _number(number: int | None) -> str:
    return words.NOTHING if number is None else str(number)
