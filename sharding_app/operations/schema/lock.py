"""Describes all declarations of this process, and keeps the description in a file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sharding_app.entities.entity_type import EntityType
from sharding_app.entities.messages import MessageSpec
from sharding_app.errors import InvalidCall
from sharding_app.operations.schema.shapes import fields_of, shape_of

FORMAT = 1
FILE = "sharding.lock.json"

Lock = dict[str, Any]


def describe(types: Iterable[EntityType], messages: Iterable[MessageSpec]) -> Lock:
    """Return the lock of these declarations."""
    lock: Lock = {
        "format": FORMAT,
        "entities": {}, "events": {}, "states": {}, "snapshots": {}, "commands": {}, "messages": {},
    }  # fmt: skip
    for each in types:
        if each.proxy_only:
            continue
        lock["entities"][each.name] = {"kind": each.kind, "ignores": sorted(each.event_codec.ignored)}
        lock["commands"].update({f"{each.name}.{key}": _command(each, key) for key in each.commands})
        for spec in each.event_codec.declared():
            lock["events"][f"{each.name}.{spec.name}"] = {
                "version": spec.version,
                "upcasts": sorted(spec.upcasters),
                "fields": fields_of(spec.resolve()),
            }
        if each.kind == "durable_state":
            lock["states"][each.name] = _state(each)
        if each.kind == "event_sourced":
            lock["snapshots"][each.name] = {"version": each.snapshot_version, **_state(each)}
    for message in messages:
        lock["messages"][message.name] = {"fields": fields_of(message.resolve())}
    return lock


def _command(entity: EntityType, name: str) -> dict[str, Any]:
    handler = entity.commands[name]
    parameters = []
    for parameter, annotation, has_default in handler.signature():
        entry: dict[str, Any] = {"name": parameter, "type": shape_of(annotation)}
        if has_default:
            entry["default"] = True
        parameters.append(entry)
    return {"query": handler.is_query, "parameters": parameters}


def _state(entity: EntityType) -> dict[str, Any]:
    own = entity.own_snapshot
    if own is not None:
        return {"snapshot": shape_of(own)}
    return {"attributes": {name: shape_of(kind) for name, kind in entity.state_types.items()}}


def read(file: Path) -> Lock | None:
    """Return a file's lock; None: there is no file."""
    try:
        found = json.loads(file.read_text())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise InvalidCall(f"{file} is no JSON: {error}. Restore it from your version control") from error
    if not isinstance(found, Mapping) or found.get("format") != FORMAT:
        raise InvalidCall(
            f"{file} is no lock file of format {FORMAT}: delete it, and run manage.py sharding_schema"
        )
    return dict(found)


def text(lock: Lock) -> str:
    """Return a lock as it stands in its file: sorted, with one entry a line."""
    parts = [f' "format": {lock["format"]}']
    for name in sorted(lock.keys() - {"format"}):
        entries = [f"  {json.dumps(key)}: {_line(lock[name][key])}" for key in sorted(lock[name])]
        lines = ",\n".join(entries)
        parts.append(f' "{name}": {{\n{lines}\n }}' if entries else f' "{name}": {{}}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _line(entry: Any) -> str:
    return json.dumps(entry, sort_keys=True, ensure_ascii=False)
