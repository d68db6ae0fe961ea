"""The output of the commands: plain columns, with colours only on a terminal."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from django.core.management.base import OutputWrapper
from django.core.management.color import Style, color_style, no_style


def style_for(stream: OutputWrapper, *, no_color: bool = False, force_color: bool = False) -> Style:
    """Return a style with colours on a terminal, unless NO_COLOR or --no-color is set."""
    if force_color:
        return color_style(force_color=True)
    return (
        color_style() if stream.isatty() and not no_color and not os.environ.get("NO_COLOR") else no_style()
    )


def columns(rows: Sequence[Sequence[str]], indent: str = "  ") -> list[str]:
    """Return the rows as lines with aligned columns."""
    widths = [
        max(len(row[place]) for row in rows if place < len(row))
        for place in range(max(map(len, rows), default=0))
    ]
    return [
        (indent + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False))).rstrip()
        for row in rows
    ]


def manage_line(*arguments: str) -> str:
    """Return the shell line that runs this command of manage.py."""
    python = short_path(Path(sys.executable)) if Path(sys.executable).is_relative_to(Path.cwd()) else "python"
    script = sys.argv[0] if sys.argv[0].endswith(".py") and "django" not in sys.argv[0] else "manage.py"
    return " ".join([python, script, *arguments])


def short_path(path: Path) -> str:
    """Return the path relative to the working directory, if it lies in it."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def age_text(seconds: float) -> str:
    """Return a duration in its largest fitting unit."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def counted(number: int, what: str) -> str:
    return f"{number} {what if number == 1 else what + 's'}"


def some(names: Sequence[str], most: int = 5) -> str:
    """Return the first names, and how many there are besides."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
