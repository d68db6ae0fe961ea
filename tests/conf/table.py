"""The table of docs/settings.md, made from the code. `python -m tests.conf.table` writes it."""

import dataclasses
import re
from pathlib import Path

import django
from django.conf import settings

from sharding_app.knobs import Knob

PAGE = Path(__file__).resolve().parents[2] / "docs" / "settings.md"
BEGIN = "<!-- begin of the table: python -m tests.conf.table -->"
END = "<!-- end of the table -->"


def table() -> str:
    from sharding_app.conf import FIELDS

    lines: list[str] = []
    group = ""
    for key, field in FIELDS.items():
        knob: Knob = field.metadata["knob"]
        if knob.group != group:
            group = knob.group
            lines += ["", f"### {group}", "", "| key | default | meaning |", "|---|---|---|"]
        default = knob.default_text or f"`{_plain(field)}`"
        lines.append(f"| `{key}` | {default} | {knob.help} |")
    return "\n".join([BEGIN, *lines, "", END])


def _plain(field: dataclasses.Field[object]) -> str:
    if field.default is dataclasses.MISSING:
        return "{}"
    if isinstance(field.default, int) and not isinstance(field.default, bool) and field.default >= 10_000:
        return f"{field.default:_}"
    return repr(field.default)


def replaced(page: str) -> str:
    return re.sub(re.escape(BEGIN) + ".*" + re.escape(END), lambda _: table(), page, flags=re.DOTALL)


if __name__ == "__main__":
    settings.configure()
    django.setup()
    PAGE.write_text(replaced(PAGE.read_text()))
