"""The output of the commands: plain columns, and colours only on a terminal."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from django.core.management.base import OutputWrapper
from django.core.management.color import Style, color_style, no_style


def style_for(stream: OutputWrapper, *, no_color: bool = False, force_color: bool = False) -> Style:
    """Colours on a terminal, unless NO_COLOR or --no-color says no."""
    if force_color:
        return color_style(force_color=True)
    return (
        color_style() if stream.isatty() and not no_color and not os.environ.get("NO_COLOR") else no_style()
    )


def columns(rows: Sequence[Sequence[str]], indent: str = "  ") -> list[str]:
    """Lines in which the cells of a column stand below each other."""
    widths = [
        max(len(row[place]) for row in rows if place < len(row))
        for place in range(max(map(len, rows), default=0))
    ]
    return [
        (indent + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False))).rstrip()
        for row in rows
    ]


def manage_line(*arguments: str) -> str:
    """How the reader of this text would type a command of manage.py."""
    python = short_path(Path(sys.executable)) if Path(sys.executable).is_relative_to(Path.cwd()) else "python"
    script = sys.argv[0] if sys.argv[0].endswith(".py") and "django" not in sys.argv[0] else "manage.py"
    return " ".join([python, script, *arguments])


def short_path(path: Path) -> str:
    """The path as seen from here, where that is shorter."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def age_text(seconds: float) -> str:
    """A duration as people say it."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def counted(number: int, what: str) -> str:
    return f"{number} {what if number == 1 else what + 's'}"
