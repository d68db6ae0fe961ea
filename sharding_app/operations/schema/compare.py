"""What a change of the declarations breaks, and how to make it: one finding for each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from sharding_app.operations.schema.lock import Lock
from sharding_app.operations.schema.readable import lost_fields, unreadable


class Finding(NamedTuple):
    """One thing that stored data, waiting calls or older nodes no longer fit."""

    where: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.where}: {self.problem}. {self.remedy}."


def breaks(
    old: Lock,
    new: Lock,
    *,
    snapshots_of: frozenset[str] = frozenset(),
    trimmed: frozenset[str] = frozenset(),
) -> list[Finding]:
    """Return all that the change from one lock to another breaks.

    `snapshots_of` names the entity types that take snapshots, and `trimmed` those whose events are
    deleted behind them.
    """
    gone = set(old["entities"]) - set(new["entities"])
    return sorted(
        [
            *_entities(old, new),
            *(each for each in _events(old, new) if not _within(each.where, gone)),
            *_states(old, new),
            *_snapshots(old, new, snapshots_of, trimmed),
            *(each for each in _commands(old, new) if not _within(each.where, gone)),
            *_messages(old, new),
        ]
    )


def _within(where: str, types: set[str]) -> bool:
    return where.partition(" ")[2].rpartition(".")[0] in types


def _entities(old: Lock, new: Lock) -> Iterator[Finding]:
    for name, entry in old["entities"].items():
        now = new["entities"].get(name)
        where = f"entity {name}"
        if now is None:
            same = [
                each for each in new["entities"].keys() - old["entities"].keys()
                if _of(new["events"], each) == _of(old["events"], name) and _of(old["events"], name)
            ]  # fmt: skip
            renamed = (
                f"{same[0]} looks like it: keep the stored name, "
                if same
                else "If it was renamed, keep the name, "
            )
            yield Finding(
                where, "no class has this name any more, and its journal, messages and timers wait for it",
                f"{renamed}as in class …(…, name={name!r}). If it is not wanted any more, remove its data first",
            )  # fmt: skip
        elif now["kind"] != entry["kind"]:
            yield Finding(
                where, f"it was {entry['kind']} and is {now['kind']}, which reads nothing of what it stored",
                "Give the new class another name, and carry its state over by commands",
            )  # fmt: skip


def _of(entries: dict[str, Any], entity: str) -> dict[str, Any]:
    """Return the entries of one entity type by their own names."""
    return {
        key.removeprefix(f"{entity}."): value
        for key, value in entries.items()
        if key.rpartition(".")[0] == entity
    }


def _events(old: Lock, new: Lock) -> Iterator[Finding]:
    for key, before in old["events"].items():
        where = f"event {key}"
        entity, _, name = key.rpartition(".")
        now = new["events"].get(key)
        if now is None:
            if name not in new["entities"].get(entity, {}).get("ignores", ()):
                yield _lost_event(where, entity, name, before, old, new)
            continue
        version = now["version"]
        if version < before["version"]:
            yield Finding(
                where, f"its version was {before['version']} and is {version}",
                f"Versions only rise: declare version={before['version'] + 1}",
            )  # fmt: skip
        elif version == before["version"]:
            for problem in lost_fields(before["fields"], now["fields"]):
                yield Finding(
                    where, problem,
                    f"Old records stay as they are: give a new field a default, or declare version={version + 1} and "
                    f"add @upcasts({name}, from_version={version})",
                )  # fmt: skip
            yield from _missed_by_older_nodes(where, before, now)
        wanted = {*before["upcasts"], *range(before["version"], version)}
        for step in sorted(wanted - set(now["upcasts"])):
            yield Finding(
                where, f"records of version {step} cannot be read", f"Add @upcasts({name}, from_version={step})"
            )  # fmt: skip


def _lost_event(where: str, entity: str, name: str, before: dict[str, Any], old: Lock, new: Lock) -> Finding:
    alike = [
        each for each, now in _of(new["events"], entity).items()
        if f"{entity}.{each}" not in old["events"] and now["fields"] == before["fields"]
    ]  # fmt: skip
    if alike:
        return Finding(
            where, f"no event has this name any more, and {alike[0]} has the same fields",
            f"If {alike[0]} is the same event, keep its stored name: @event(name={name!r})",
        )  # fmt: skip
    return Finding(
        where, "no event has this name any more, and records of it are in journals",
        f"Keep the class and its applier. If the event has no meaning any more, list {name!r} in ignore_events",
    )  # fmt: skip


def _missed_by_older_nodes(where: str, before: dict[str, Any], now: dict[str, Any]) -> Iterator[Finding]:
    """Find fields that older nodes still want, of records that newer ones write without them."""
    for name, entry in before["fields"].items():
        if name not in now["fields"] and not entry.get("default"):
            yield Finding(
                where, f"{name} is removed, and nodes of the former release cannot read records without it",
                "Release it with a default first, and remove it in the release after that",
            )  # fmt: skip


def _states(old: Lock, new: Lock) -> Iterator[Finding]:
    for name, before in old["states"].items():
        now = new["states"].get(name)
        for problem in _unreadable_state(before, now) if now else ():
            yield Finding(
                f"state {name}", f"{problem}, and a stored state has no events behind it",
                "Keep the attribute and add one with another name, or define snapshot() and restore(state)",
            )  # fmt: skip
        if now and "attributes" in before and "attributes" in now:
            for gone in sorted(before["attributes"].keys() - now["attributes"].keys()):
                yield Finding(
                    f"state {name}", f"{gone} is removed, and each entity loses its value with its next command",
                    "Keep the attribute until no release that uses it runs or may come back, and --accept it then",
                )  # fmt: skip


def _snapshots(old: Lock, new: Lock, taken: frozenset[str], trimmed: frozenset[str]) -> Iterator[Finding]:
    for name, before in old["snapshots"].items():
        now = new["snapshots"].get(name)
        if now is None or name not in taken:
            continue
        where = f"snapshot {name}"
        if now["version"] < before["version"]:
            yield Finding(
                where, f"its version was {before['version']} and is {now['version']}",
                f"Versions only rise: set snapshot_version = {before['version'] + 1}",
            )  # fmt: skip
        if now["version"] != before["version"]:
            if name in trimmed and now["version"] > before["version"]:
                yield Finding(
                    where, "its version is raised, and the older snapshots are all that is left of deleted events",
                    f"Keep snapshot_version = {before['version']}, define snapshot() and a restore(state) that reads both forms, and --accept it",
                )  # fmt: skip
            continue
        added = now.get("attributes", {}).keys() - before.get("attributes", {}).keys()
        problems = [
            f"{each} is new, and entities recovered from an older snapshot lack it" for each in sorted(added)
        ]
        remedy = (
            "Its events are deleted behind snapshots: define snapshot() and a restore(state) that reads both forms, and --accept it"
            if name in trimmed
            else f"Set snapshot_version = {now['version'] + 1}: older snapshots are skipped, and the events are read instead"
        )
        for problem in (*problems, *_unreadable_state(before, now)):
            yield Finding(where, problem, remedy)


def _unreadable_state(before: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    if ("snapshot" in before) != ("snapshot" in now):
        yield "it is stored in another form"
    elif "snapshot" in now:
        yield from unreadable(before["snapshot"], now["snapshot"], "its snapshot")
    else:
        for name, shape in now["attributes"].items():
            if name in before["attributes"]:
                yield from unreadable(before["attributes"][name], shape, name)


def _commands(old: Lock, new: Lock) -> Iterator[Finding]:
    for key, before in old["commands"].items():
        now = new["commands"].get(key)
        where = f"{'query' if before['query'] else 'command'} {key}"
        if now is None:
            waits = "" if before["query"] else ", and durable messages and timers may wait for it"
            yield Finding(
                where, f"it is removed{waits}",
                "Keep it until no caller of the former release runs"
                + ("" if before["query"] else " and nothing that is pending names it"),
            )  # fmt: skip
            continue
        if now["query"] and not before["query"]:
            yield Finding(
                where, "it is a query now, and durable messages and timers call commands only",
                "Add the query under another name, and keep the command",
            )  # fmt: skip
        for problem in _arguments(before["parameters"], now["parameters"]):
            yield Finding(
                where, problem, "Waiting calls keep their arguments, in order: add new ones at the end, behind those for keywords too, with a default"
            )  # fmt: skip


def _arguments(before: list[dict[str, Any]], now: list[dict[str, Any]]) -> Iterator[str]:
    names = [each["name"] for each in before]
    moved = [each["name"] for each in now if each["name"] in names]
    if moved != [name for name in names if name in moved]:
        yield "its arguments stand in another order"
        return
    for place, each in enumerate(now if len(now) >= len(before) else ()):
        if each["name"] in names and names.index(each["name"]) != place:
            # A call is a list of values: one of the former release would be read with another name.
            yield f"argument {each['name']} was number {names.index(each['name']) + 1} and is number {place + 1}"
            return
    for place, each in enumerate(now):
        if place < len(before):
            yield from unreadable(before[place]["type"], each["type"], f"argument {each['name']}")
            if before[place].get("default") and not each.get("default"):
                yield f"argument {each['name']} has lost its default"
        elif not each.get("default"):
            yield f"argument {each['name']} is new and has no default"
    if len(now) < len(before):
        yield f"it takes {len(now)} arguments, and took {len(before)}"


def _messages(old: Lock, new: Lock) -> Iterator[Finding]:
    for name, before in old["messages"].items():
        now = new["messages"].get(name)
        where = f"message {name}"
        if now is None:
            yield Finding(
                where, "no class has this name any more, and senders of the former release still use it",
                f"Keep the class for one release. If it was renamed, keep its name: @message(name={name!r})",
            )  # fmt: skip
            continue
        for problem in lost_fields(before["fields"], now["fields"]):
            yield Finding(where, problem, "Give it a default, or add a message with another name")
        yield from _missed_by_older_nodes(where, before, now)
