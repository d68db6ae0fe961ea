"""A script, read back: who did each line, to whom, and in words that a picture has room for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from tests.simulation.golden.words import LEFT

Kind = Literal["message", "write", "refused", "read", "note"]

SERVER = "postgres"
BEGINNING = "At the beginning"
_AT = 2 + LEFT + 1
"""The column in which the text of a line begins. Text further to the right goes on with it."""
_NODE = re.compile(r"\bn\d\b")
_MESSAGE = re.compile(r"(?P<name>\w+)\((?P<fields>.*)\)$")
_ROW = re.compile(r"sharding_(?P<table>\w+)(?: (?P<key>[^:]+))?: (?P<rest>.*)$")
_FIELD = re.compile(r"(?P<name>\w+)=(?P<value>\w+\([^)]*\)|'[^']*'|\[[^\]]*\]|\S+)")
_CALL = re.compile(r"\w+\.ref\('(?P<entity>\w+)'(?P<options>[^)]*)\)\.")
_LOCK = re.compile(r"(lock [\w. ]+): new holder=\S+")
_SHOWN = {
    "shards": "shard", "epochs": "epoch", "shard": "shard", "epoch": "epoch", "term": "term",
    "coordinator": "coordinator", "home": "home", "incarnations": "node", "incarnation": "node",
    "age": "age", "state": "state", "action": "", "target": "to", "code": "", "value": "", "locks": "locks",
    "heard": "heard",
}  # fmt: skip
"""Fields that a picture shows, and as which word. The script has all of them."""
_REST = {("step", "home"), ("heard", "True"), ("value", "[done, 0.0]")}


@dataclass
class Line:
    """One message, or one change or look-up at the server, or a note of a process about itself."""

    kind: Kind
    source: str
    target: str
    texts: list[str]


@dataclass
class Part:
    """What happens after one heading."""

    heading: str
    lines: list[Line] = field(default_factory=list)


@dataclass
class Script:
    title: str
    about: str
    roles: dict[str, list[str]]
    "Each process, and what it is at the beginning."
    parts: list[Part]


def read(text: str) -> Script:
    title, about, *blocks = text.strip().split("\n\n")
    beginning, *others = blocks
    assert beginning.startswith(BEGINNING)
    parts = [_part(block) for block in others]
    named = _NODE.findall(beginning) + [
        each for part in parts for line in part.lines for each in (line.source, line.target)
    ]
    names = sorted({each.partition(".")[0] for each in named} - {SERVER, "web"})
    roles = {"web": ["asks only"], **{each: _roles(each, beginning) for each in names}}
    return Script(title, " ".join(about.split()), roles, parts)


def _roles(node: str, beginning: str) -> list[str]:
    roles = ["coordinator"] if re.search(rf"sharding_coordinator: .*\bnode={node}\b", beginning) else []
    homes = re.findall(rf"sharding_shard [\w.]+/(\d+): .*\bhome={node}\b", beginning)
    return [*roles, *([f"home of shard {', '.join(homes)}"] if homes else [])] or ["node"]


def _part(block: str) -> Part:
    rows = block.splitlines()
    begins = next((number for number, row in enumerate(rows) if row.startswith("  ")), len(rows))
    part = Part(" ".join(rows[:begins]))
    verb = ""
    for row in _joined(rows[begins:]):
        said = row[2:_AT].strip()
        verb = said or verb
        _add(part.lines, verb, row[_AT:], goes_on=not said)
    return part


def _joined(rows: list[str]) -> Iterator[str]:
    whole = ""
    for row in rows:
        if whole and not row[: _AT + 1].strip():
            whole += f" {row.strip()}"
            continue
        if whole:
            yield whole
        whole = row
    if whole:
        yield whole


def _add(lines: list[Line], verb: str, text: str, *, goes_on: bool) -> None:
    if "sharding_decision" in text:
        return
    new = _line(verb, _short(text))
    if goes_on and lines and (lines[-1].kind, lines[-1].source) == (new.kind, new.source):
        lines[-1].texts += new.texts  # a row of the same transaction
    else:
        lines.append(new)


def _line(verb: str, text: str) -> Line:
    who, _, does = verb.partition(" ")
    match does.split():
        case ["->", target]:
            return Line("message", who, target, [text])
        case ["writes"]:
            return Line("write", who, SERVER, [text])
        case ["reads"]:
            return Line("read", SERVER, who, [text])
        case ["fails"]:
            tried, _, error = text.partition(": ")
            return Line("refused", who, SERVER, [f"{tried} refused: {error}"])
    return Line("note", who, who, [text])


def _short(text: str) -> str:
    """Return a line in few words. A field and its value stay on one line of the picture."""
    text = text.replace(" -> ", " → ")
    if found := _MESSAGE.match(text):
        return _message(found["name"], _fields(found["fields"]))
    if found := _ROW.match(text):
        return _row(found["table"], (found["key"] or "").rpartition("shop.")[2], found["rest"])
    return _CALL.sub(r"\g<entity>.", _LOCK.sub(r"takes \1", text))


def _message(name: str, fields: dict[str, str]) -> str:
    if name != "Deliver":
        if name.startswith("Register"):
            fields.pop("incarnation", None)  # the sender itself
        said = _said(fields)
        return f"{name}: {said}" if said else name
    text = f"{name} {_command(fields['entity'], fields)}, epoch\xa0{fields['epoch']}"
    text += f", attempt\xa0{fields['attempt']}" if "attempt" in fields else ""
    return text + (", durable" if "delivery" in fields else "")


def _row(table: str, key: str, rest: str) -> str:
    fields = _fields(rest)
    _, _, of = key.partition("/")
    if table in ("event", "message"):
        if not key:
            return f"reads {rest.replace(' rows of', ' event of' if rest.startswith('1 ') else ' events of')}"
        entity, _, number = of.partition("/")
        named = f"{table} {number} of {entity}"
        if "name" in fields:
            return f"{named}: {fields['name']}, epoch\xa0{fields['epoch']}"
        return f"{named}: {_command(fields['target'], fields)}" if fields else f"{named}: {rest}"
    named = f"{table} {of or key}".strip()
    return f"{named}: {_said(fields) if fields else rest.removeprefix('new ')}"


def _command(entity: str, fields: dict[str, str]) -> str:
    return f"{entity}.{fields['command']}({fields.get('args', '[]')[1:-1]})"


def _fields(text: str) -> dict[str, str]:
    return {found["name"]: found["value"] for found in _FIELD.finditer(text)}


def _said(fields: dict[str, str]) -> str:
    shown = (
        f"{_SHOWN[name]}\xa0{value.strip('[]')}".strip()
        for name, value in fields.items()
        if name in _SHOWN and (name, value) not in _REST
    )
    return ", ".join(shown)
