"""The tables of docs/settings.md, made from the code: the keys that people set first, then the
others. `python -m tests.docs.settings_table` writes them.
"""

import dataclasses
import re
from pathlib import Path

import django
from django.conf import settings

from sharding_app.settings.schema import Knob

PAGE = Path(__file__).resolve().parents[2] / "docs" / "settings.md"
BEGIN = "<!-- begin of the table: python -m tests.docs.settings_table -->"
END = "<!-- end of the table -->"
FIRST = (
    "DATABASE", "LIFELINE_DATABASE", "CHANNEL_LAYER", "LINKS", "KEYS", "STEERING_KEYS", "NODE_NAME", "ROLES",
    "APP_VERSION", "COORDINATOR", "MIN_NODES", "NUMBER_OF_SHARDS", "ASK_TIMEOUT_SECONDS", "COMMAND_WINDOW_SECONDS",
    "MAILBOX_SIZE", "PASSIVATE_AFTER_SECONDS", "ACTIVE_ENTITY_LIMIT", "SNAPSHOT_EVERY", "USE_LEASE",
    "TRANSACTION_THREADS", "LEASE_TTL_SECONDS", "HANDOFF_TIMEOUT_SECONDS", "HEALTH_PORT", "METRICS_TOKEN",
)  # fmt: skip
HEAD = ["", "| key | default | meaning |", "|---|---|---|"]


def table() -> str:
    from sharding_app.settings.load import FIELDS

    assert set(FIRST) <= FIELDS.keys()
    lines = ["", "## The keys that people set first", *HEAD, *(_row(key, FIELDS[key]) for key in FIRST)]
    lines += ["", "## Advanced"]
    group = ""
    for key, field in FIELDS.items():
        if key in FIRST:
            continue
        knob: Knob = field.metadata["knob"]
        if knob.group != group:
            group = knob.group
            lines += ["", f"### {group}", *HEAD]
        lines.append(_row(key, field))
    return "\n".join([BEGIN, *lines, "", END])


def _row(key: str, field: dataclasses.Field[object]) -> str:
    knob: Knob = field.metadata["knob"]
    default = knob.default_text or f"`{_plain(field)}`"
    return f"| `{key}` | {default} | {knob.help} |"


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
