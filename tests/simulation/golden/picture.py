"""Scripts as sequence diagrams: SVG in which all that is measured is counted in characters.

A picture has its own background, light or dark as the reader's system is, so that it can be read
on any page. Its text is monospace: the width of a label is its number of characters.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from html import escape
from pathlib import Path

from tests.simulation.golden.lines import SERVER, Line, Script, read

IMAGES = Path(__file__).parents[3] / "docs" / "images"
PICTURED = (
    "first_message", "hand_off", "late_write", "lease_loss", "coordinator_change", "durable_message",
    "passivation",
)  # fmt: skip
"""The scripts that have a picture, in the order of the page that explains them."""

CHARACTER = 7.25
"""Pixels of one in a font of 12 pixels, at most."""
COLUMN = 236
MARGIN = 120
ROW = 15
"""Pixels from one line of a label to the next."""
GAP = 17
LOOP = 26
ARROW = 7
STYLE = """\
svg { --paper: #ffffff; --ink: #1f2328; --soft: #656d76; --line: #c4cbd3; --band: #eef2f6;
  --message: #0a58ca; --write: #1a7f37; --read: #6e5494; --refused: #c1121f }
@media (prefers-color-scheme: dark) {
  svg { --paper: #0d1117; --ink: #e6edf3; --soft: #9da7b3; --line: #3d444d; --band: #1c2430;
    --message: #6cb0ff; --write: #56d364; --read: #d2a8ff; --refused: #ff7b72 } }
text { font: 12px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace; fill: var(--ink) }
text.label { paint-order: stroke; stroke: var(--paper); stroke-width: 5px; stroke-linejoin: round }
.name { font-weight: 700 } .role { fill: var(--soft) }
.paper { fill: var(--paper) } .band, .box { fill: var(--band) } .box { stroke: var(--line) }
.life { stroke: var(--line); stroke-dasharray: 3 4 }
path { fill: none; stroke-width: 1.5 }
.message { stroke: var(--message) } .message-end { fill: var(--message) }
.write { stroke: var(--write) } .write-end { fill: var(--write) }
.read { stroke: var(--read); stroke-dasharray: 5 4 } .read-end { fill: var(--read) }
.refused { stroke: var(--refused) } .refused-end { fill: var(--refused) }
.refused-text { fill: var(--refused) }"""


def path_of(name: str) -> Path:
    return IMAGES / f"protocol-{name.replace('_', '-')}.svg"


def picture_of(script: str) -> str:
    return _Picture(read(script)).text()


class _Picture:
    def __init__(self, script: Script) -> None:
        self._script = script
        names = [*script.roles, SERVER]
        self._at = {name: MARGIN + COLUMN * number for number, name in enumerate(names)}
        self._width = 2 * MARGIN + COLUMN * (len(names) - 1)
        self._runs: set[str] = set()
        "Processes whose name stands on their line already."
        self._y = 0.0
        self._drawn: list[str] = []

    def text(self) -> str:
        self._heads()
        top = self._y
        for part in self._script.parts:
            self._band(part.heading)
            for line in part.lines:
                self._line(line)
        height = self._y + 16
        title, about = (escape(each, quote=False) for each in (self._script.title, self._script.about))
        lives = (f'<path class="life" d="M{x} {top:g}V{height - 8:g}"/>' for x in self._at.values())
        return "\n".join(
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self._width} {height:g}"'
                f' width="{self._width}" height="{height:g}" role="img" aria-labelledby="title about">',
                f'<title id="title">{title}</title>',
                f'<desc id="about">{about}</desc>',
                f"<style>\n{STYLE}\n</style>",
                f'<rect class="paper" width="{self._width}" height="{height:g}" rx="6"/>',
                *lives,
                *self._drawn,
                "</svg>\n",
            )
        )

    # -- Parts -------------------------------------------------------------------------------------

    def _heads(self) -> None:
        rows = 1 + max(map(len, self._script.roles.values()))
        height = rows * ROW + 14
        for name, x in self._at.items():
            roles = self._script.roles.get(name, ["rows and locks"])
            self._drawn.append(
                f'<rect class="box" x="{x - 95}" y="10" width="190" height="{height}" rx="5"/>'
            )
            self._words([name], x, 28, "name")
            self._words(roles, x, 28 + ROW, "role")
            self._runs.add(name)
        self._y = 10.0 + height

    def _band(self, heading: str) -> None:
        texts = textwrap.wrap(heading, int((self._width - 40) / CHARACTER))
        height = len(texts) * ROW + 10
        self._y += 14
        self._drawn.append(
            f'<rect class="band" x="8" y="{self._y:g}" width="{self._width - 16}" height="{height}" rx="4"/>'
        )
        self._words(texts, 20, self._y + 17, "name", "start")
        self._y += height

    def _line(self, line: Line) -> None:
        for name in (line.source, line.target):
            if name not in self._runs:
                self._begins(name)
        if line.kind == "note":
            self._note(line)
        elif self._x(line.source) == self._x(line.target):
            self._loop(line)
        else:
            self._arrow(line)

    # -- Shapes ------------------------------------------------------------------------------------

    def _begins(self, name: str) -> None:
        """Mark on the line of a process that its next run begins."""
        self._runs.add(name)
        x = self._x(name)
        self._y += 12
        self._drawn.append(
            f'<rect class="box" x="{x - 40:g}" y="{self._y:g}" width="80" height="22" rx="4"/>'
        )
        self._words([name], x, self._y + 15, "name")
        self._y += 22

    def _note(self, line: Line) -> None:
        texts = _wrapped(line.texts, 29)
        x, height = self._x(line.source), len(texts) * ROW + 8
        self._y += 10
        width = max(map(len, texts)) * CHARACTER + 16
        self._drawn.append(
            f'<rect class="box" x="{x - width / 2:g}" y="{self._y:g}" width="{width:g}" height="{height}" rx="4"/>'
        )
        self._words(texts, x, self._y + 15)
        self._y += height

    def _loop(self, line: Line) -> None:
        """A message of a node to itself: of its coordinator to its regions, or back."""
        x = self._x(line.source)
        last = max(self._at.values())
        room = last + MARGIN - x - LOOP - 14
        texts = _wrapped(line.texts, int(min(room, 1.9 * COLUMN) / CHARACTER))
        height = max(len(texts) * ROW, 18)
        self._y += 8
        self._path("message", f"M{x} {self._y:g}h{LOOP}v{height:g}h{-LOOP + ARROW}")
        self._end("message", x, self._y + height, -1)
        self._words(texts, x + LOOP + 8, self._y + 13 + (height - len(texts) * ROW) / 2, "label", "start")
        self._y += height + 2

    def _arrow(self, line: Line) -> None:
        begins, ends = self._x(line.source), self._x(line.target)
        way = 1 if ends > begins else -1
        texts = _wrapped(line.texts, int((abs(ends - begins) - 22) / CHARACTER))
        self._y += GAP + ROW * (len(texts) - 1)
        style = "label refused-text" if line.kind == "refused" else "label"
        self._words(texts, (begins + ends) / 2, self._y - ROW * (len(texts) - 1), style)
        self._y += 7
        if line.kind == "refused":
            stop = ends - way * 22
            self._path("refused", f"M{begins} {self._y:g}H{stop:g}")
            self._path("refused", f"M{stop - 5:g} {self._y - 5:g}l10 10m0 -10l-10 10")
        else:
            self._path(line.kind, f"M{begins} {self._y:g}H{ends - way * ARROW}")
            self._end(line.kind, ends, self._y, way)

    def _path(self, style: str, data: str) -> None:
        self._drawn.append(f'<path class="{style}" d="{data}"/>')

    def _end(self, style: str, x: float, y: float, way: int) -> None:
        back = -way * (ARROW + 1)
        self._drawn.append(f'<path class="{style}-end" d="M{x:g} {y:g}l{back} -4v8z"/>')

    def _words(
        self, texts: Iterable[str], x: float, y: float, style: str = "", anchor: str = "middle"
    ) -> None:
        kind = f' class="{style}"' if style else ""
        for number, text in enumerate(texts):
            self._drawn.append(
                f'<text{kind} x="{x:g}" y="{y + number * ROW:g}" text-anchor="{anchor}">{escape(text, quote=False)}</text>'
            )

    def _x(self, name: str) -> int:
        return self._at[name.partition(".")[0]]


def _wrapped(texts: Iterable[str], width: int) -> list[str]:
    return [row for text in texts for row in textwrap.wrap(text, width, break_long_words=False)]
