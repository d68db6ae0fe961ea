"""How messages and rows are written in a script: the same on each machine, and short enough to be
read.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

Fields = Mapping[str, object]
Key = tuple[str, str]
"""A table, and the key of a row in it."""
Rows = dict[Key, Fields]

OF_A_NODE = ("age", "state", "asked", "deaf")
OF_A_SHARD = ("epoch", "home", "step")
OF_AN_EVENT = ("shard", "epoch", "name", "payload", "command_id", "reply", "partial")
OF_A_MESSAGE = ("shard", "epoch", "target", "command", "args")
OF_A_DECISION = ("action", "subject", "detail")
UNSAID = frozenset({"born_ms", "deadline_ms", "trace", "text"})
"""Fields of messages that are not the same in each run, and words for people."""
ENCODED = frozenset({"args", "value", "reply"})
"""Fields that hold MessagePack."""
WIDTH = 100
LEFT = 14
SECONDS = re.compile(r"\b\d+ ms\b")
PROCESS = re.compile(r"\b(?P<name>n\d|p-c0)(?:-(?P<run>\d+))?\b")


class Names:
    """Processes by names that do not depend on how often each has tried to start."""

    def __init__(self) -> None:
        self._runs: dict[str, list[str]] = {}

    def line(self, who: str, text: str) -> list[str]:
        """Return one line of a script, or several where it is long."""
        return textwrap.wrap(
            f"{self._named(who):<{LEFT}} {self._named(text)}", WIDTH,
            initial_indent="  ", subsequent_indent=" " * (LEFT + 7), break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip

    def _named(self, text: str) -> str:
        return SECONDS.sub("some time", PROCESS.sub(self._name, text))

    def _name(self, found: re.Match[str]) -> str:
        """Number nodes from 1, and the runs of a process as they appear."""
        slot, run = found["name"], found["run"]
        name = "web" if slot == "p-c0" else f"n{int(slot[1:]) + 1}"
        if run is None:
            return name
        runs = self._runs.setdefault(slot, [])
        if run not in runs:
            runs.append(run)
        number = runs.index(run) + 1
        return name if number == 1 else f"{name}.{number}"


def columns(row: Any, names: Iterable[str]) -> Fields:
    return {each: _decoded(each, getattr(row, each)) for each in names}


def listed(fields: Fields) -> str:
    """Return the fields that are not empty."""
    return " ".join(f"{name}={value(each)}" for name, each in fields.items() if not _is_empty(each))


def row(key: Key, text: str) -> str:
    return f"{' '.join(key).rstrip()}: {text}".rstrip(": ")


def changes(before: Rows, after: Rows) -> Iterator[tuple[Key, str]]:
    """Return the keys that are new, gone, or changed, and the text of each."""
    for key in dict.fromkeys((*before, *after)):
        old, new = before.get(key), after.get(key)
        if old is None and new is not None:
            yield key, row(key, f"new {listed(new)}".rstrip())
        elif new is None:
            yield key, row(key, "gone")
        elif old is not None and old != new:
            differs = (each for each in new if new[each] != old[each])
            changed = (f"{each} {value(old[each])} -> {value(new[each])}" for each in differs)
            yield key, row(key, ", ".join(changed))


def value(of: object) -> str:
    match of:
        case msgspec.Struct():
            names = (each for each in of.__struct_fields__ if each not in UNSAID)
            defaults = dict(zip(of.__struct_fields__[::-1], of.__struct_defaults__[::-1], strict=False))
            said = {each: getattr(of, each) for each in names if getattr(of, each) != defaults.get(each, ...)}
            return (
                f"{type(of).__name__}({listed({name: _decoded(name, each) for name, each in said.items()})})"
            )
        case str():
            return of if of and " " not in of else repr(of)
        case list() | tuple():
            return f"[{', '.join(map(value, of))}]"
        case bytes():
            return of.decode()
    return str(of)


def _decoded(name: str, of: object) -> object:
    return msgspec.msgpack.decode(of) if name in ENCODED and isinstance(of, bytes) else of


def _is_empty(of: object) -> bool:
    return of is None or of is False or of in ("", (), [], {})
