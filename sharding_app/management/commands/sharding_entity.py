"""`manage.py sharding_entity TYPE ID`: one entity from the command line."""

import asyncio
from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db import DatabaseError, connections

from sharding_app.adapters.django.database import ReadTooLong, bounded_reads, run_query
from sharding_app.dashboard import messages
from sharding_app.dashboard.history import History, entity_journal, read_history, state_at
from sharding_app.dashboard.keyset import storable
from sharding_app.management.arguments import count, positive
from sharding_app.management.operator_command import OperatorCommand, refused, signed
from sharding_app.operations.connectivity import UNREACHABLE, CannotReach, database_trouble, joined
from sharding_app.operations.each_journal import (
    Down,
    JournalsDown,
    ask,
    copies_among,
    journal_name,
)
from sharding_app.operations.snapshot import ClusterSnapshot, TypeRow, read_shards, read_snapshot
from sharding_app.protocol.ids import MAX_ENTITY_ID_BYTES, Incarnation
from sharding_app.protocol.messages import (
    EntityState,
    GetEntities,
    OperatorReply,
    OperatorRequest,
)
from sharding_app.protocol.records import Member, ShardRow
from sharding_app.settings.load import get_settings
from sharding_app.wiring import new_loop

ANSWER_SECONDS = 15.0
EVENTS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where an entity is, by the row of its shard and by its home's answer."""

    row: ShardRow | None
    home: Member | None
    state: EntityState | None = None
    "What its home says of it; None: it is not in memory, or the home did not answer."
    answered: bool = False
    reply: OperatorReply | None = None


class Command(OperatorCommand):
    help = (
        "Show one entity: where it is, what it does and waits for, its newest events, its messages and timers. With\n"
        "--passivate or --restart its home is asked to stop it, or to recover it anew. With --command-id the event of a\n"
        "command is looked for: of one entity by an index, or of all among the events of the last hours.\n\n"
        "Examples:\n"
        "  manage.py sharding_entity shop.Cart alice                    where it is, and its last events\n"
        "  manage.py sharding_entity shop.Cart alice --content --json   with the contents of events, and the state\n"
        "  manage.py sharding_entity shop.Cart alice --restart          drop its object and recover it\n"
        "  manage.py sharding_entity shop.Cart alice --command-id 7f3a  what became of a command\n"
        "  manage.py sharding_entity --command-id 7f3a --hours 2        whose command it was\n\n"
        "Exit codes: 0 done, 1 refused or not found, 2 a server cannot be reached."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "type", metavar="TYPE", nargs="?", default="", help="name of the type, such as shop.Cart"
        )
        parser.add_argument("id", metavar="ID", nargs="?", default="", help="id of the entity")
        parser.add_argument(
            "--events", type=count, default=EVENTS, metavar="N", help="newest events to show (default: 10)"
        )
        parser.add_argument(
            "--content", action="store_true", help="show the contents of events, and the state that they make"
        )
        parser.add_argument("--passivate", action="store_true", help="stop it after its current command")
        parser.add_argument("--restart", action="store_true", help="drop its object and recover it at once")
        parser.add_argument("--command-id", default="", metavar="ID", help="look for the event of a command")
        parser.add_argument(
            "--hours", type=positive, default=1.0,
            help="with --command-id and without an entity: how far to look back (default: 1)",
        )  # fmt: skip

    def work(self, options: dict[str, Any]) -> None:
        name, entity, command_id = options["type"], options["id"], options["command_id"]
        if not (name and entity) and not (command_id and not name):
            raise refused("Name a TYPE and an ID, or look for a command with --command-id alone.")
        if options["passivate"] and options["restart"]:
            raise refused("Give --passivate or --restart, not both.")
        fits = storable(entity + command_id) and len(entity.encode()) <= MAX_ENTITY_ID_BYTES
        if not fits:
            raise refused("No entity and no command can have this id.")
        alias = get_settings().database
        try:
            cluster = read_snapshot(alias)
            if command_id:
                self._find(cluster, name, entity, command_id, options["hours"])
            else:
                self._show(cluster, _type_row(cluster, name), entity, options)
        except JournalsDown as error:
            raise _unread(error.down) from error
        except ReadTooLong as error:
            raise refused(f"{error} Look back less far with --hours.") from error
        except DatabaseError as error:
            raise database_trouble(alias, error) from error
        finally:
            connections[alias].close()

    # -- A command -----------------------------------------------------------------------------

    def _find(self, cluster: ClusterSnapshot, name: str, entity: str, command_id: str, hours: float) -> None:
        params: dict[str, Any] = {"command_id": command_id, "seconds": hours * 3600}
        journals = cluster.journal_names
        if name:
            row = _type_row(cluster, name)
            params |= {"type_id": row.number, "entity": entity}
            journals = [entity_journal(row.number, row.config, entity, journals)]

        def look(alias: str) -> list[tuple[Any, ...]]:
            with bounded_reads(alias), connections[alias].cursor() as cursor:
                return run_query(cursor, "command_event" if name else "command_lately", params)

        asked = ask(journals, look)
        copies = copies_among(asked.found)
        rows = [
            row
            for journal, some in asked.found.items()
            for *row, number, shard in some
            if copies.lies_in(journal, number, row[1], shard)
        ]
        found = [
            {
                "type": type_name,
                "entity": whose,
                "seq": seq,
                "name": event,
                "command": command,
                "at": at.isoformat(),
            }
            for type_name, whose, seq, event, command, at in rows
        ]
        if asked.down and not found:
            raise _unread(asked.down)
        if not found:
            where = f"{name} {entity!r}" if name else f"any entity in the last {hours:g} h"
            raise refused(
                f"No event of {where} carries the command id {command_id!r}: nothing of it is stored there."
            )
        for each in found:
            command = str(each["command"] or "").partition("#")[0]
            self.say(
                f"{each['type']} {each['entity']!r} event {each['seq']} {each['name']}, by {command} at {each['at']}"
            )
        for each_down in asked.down:
            self.say(
                f"The journal {each_down.name!r} does not answer, and was not searched: {each_down.why}."
            )
        self.result(events=found, **_unanswered(asked.down))

    # -- An entity -----------------------------------------------------------------------------

    def _show(self, cluster: ClusterSnapshot, row: TypeRow, entity: str, options: dict[str, Any]) -> None:
        journals = cluster.journal_names
        history = read_history(
            row.number, row.config, entity, None, payloads=options["content"], journals=journals
        )
        action = "passivate" if options["passivate"] else "restart" if options["restart"] else ""
        with asyncio.Runner(loop_factory=new_loop) as runner:
            place = runner.run(_place(cluster, row, entity, history.shard, action))
        waiting = messages.read_entity(row, entity, journals)
        events = [
            {
                "seq": each.seq, "name": each.name, "at": each.at.isoformat(),
                "command": (each.command or "").partition("#")[0], "command_id": each.command_id, "epoch": each.epoch,
                **({"content": each.shown_payload} if options["content"] else {}),  # type: ignore[attr-defined]
            }
            for each in history.events[: options["events"]]
        ]  # fmt: skip
        facts = {
            "type": row.config.name, "entity": entity, "shard": history.shard, **_where(place),
            "first_event": history.first, "last_event": history.last, "remembered": history.remembered,
            "snapshots": [each.seq for each in history.snapshots], "events": events,
            "messages": [_message(each) for each in waiting.messages],
            **_unanswered(waiting.down),
        }  # fmt: skip
        if len(journals) > 1:
            facts["journal"] = journal_name(history.journal)
        if options["content"] and history.at:
            state = state_at(row.number, row.config, entity, history.at, journals)
            facts["state"] = {name: text for name, text, _ in state.fields}
            facts["state_trouble"] = state.trouble
        if place.reply is not None:
            facts["answer"] = place.reply.text
        self._tell(facts, history, place)
        for each_down in waiting.down:
            self.say(
                f"The journal {each_down.name!r} does not answer: messages and timers there are not shown: {each_down.why}."
            )
        if action and (place.reply is None or not place.reply.ok):
            text = "its home does not answer" if place.home else "its shard has no home now"
            raise refused(f"Not done: {place.reply.text if place.reply else text}")
        self.result(**facts)

    def _tell(self, facts: dict[str, Any], history: History, place: Place) -> None:
        where = f" in the journal {facts['journal']}" if "journal" in facts else ""
        self.say(f"{facts['type']} {facts['entity']!r}, shard {facts['shard']}{where}: {_in_words(place)}")
        if not history.known:
            self.say("Nothing is stored under this id.")
        else:
            kept = f", events from {history.first}" if history.first > 1 else ""
            newest = f"; newest snapshot after event {facts['snapshots'][0]}" if facts["snapshots"] else ""
            self.say(f"{history.last} events{kept}{newest}{'; remembered' if history.remembered else ''}")
        for each in facts["events"]:
            content = f" {each['content']}" if "content" in each else ""
            self.say(f"  {each['seq']:>8}  {each['at'][:19]}  {each['name']}  {each['command']}{content}")
        for each in facts["messages"]:
            trouble_of_it = f", failed {each['failures']} times" if each["failures"] else ""
            self.say(
                f"  {each['state']}: {each['what']} to {each['target']}, due {each['due'][:19]}{trouble_of_it}"
            )
        for name, text in facts.get("state", {}).items():
            self.say(f"  {name} = {text}")
        if facts.get("state_trouble"):
            self.say(f"  its state: {facts['state_trouble']}")
        if "answer" in facts:
            self.say(str(facts["answer"]))


def _unread(down: Sequence[Down]) -> CannotReach:
    """Return the error for an answer that needs a journal that does not answer."""
    error = JournalsDown(down)
    text = str(error).rstrip(".")
    return CannotReach(
        f"{text[0].upper()}{text[1:]}. Start its server, or look again.", returncode=UNREACHABLE
    )


def _unanswered(down: Sequence[Down]) -> dict[str, Any]:
    return {"journals_down": {each.name: each.why for each in down}} if down else {}


def _type_row(cluster: ClusterSnapshot, name: str) -> TypeRow:
    found = next((each for each in cluster.types if each.config.name == name), None)
    if found is None:
        known = ", ".join(each.config.name for each in cluster.types) or "none"
        raise refused(f"The cluster knows no type {name!r} (types: {known}).")
    return found


async def _place(
    cluster: ClusterSnapshot, row: TypeRow, entity: str, shard: int | None, action: str
) -> Place:
    """Ask the home of the entity's shard, if there is one."""
    rows = {} if shard is None else await asyncio.to_thread(_shards, row.number, shard)
    found = None if shard is None else rows.get(shard)
    home = next(
        (each for each in cluster.members if found is not None and each.incarnation == found.home), None
    )
    if found is None or home is None:
        return Place(row=found, home=None)
    async with joined() as process:
        reply = None
        if action:
            request = OperatorRequest(
                0, action, row.config.name, found.shard, entity, by=signed("sharding_entity")
            )
            reply = await process.queries.operate(home.incarnation, request, ANSWER_SECONDS)
        wanted = GetEntities(0, row.config.name, found.shard, entity=entity)
        answer = await process.queries.entities(home.incarnation, wanted)
    state = next(iter(answer.entities), None) if answer is not None else None
    return Place(row=found, home=home, state=state, answered=answer is not None, reply=reply)


def _shards(number: int, shard: int) -> dict[int, ShardRow]:
    alias = get_settings().database
    try:
        return read_shards(number, range(shard, shard + 1), alias)
    finally:
        connections[alias].close()


def _where(place: Place) -> dict[str, Any]:
    home: Incarnation | None = None if place.home is None else place.home.incarnation
    return {
        "home": home,
        "node": None if place.home is None else place.home.name,
        "epoch": None if place.row is None else place.row.epoch,
        "step": None if place.row is None else place.row.step,
        "home_answers": place.answered,
        "in_memory": None
        if place.state is None
        else {
            "doing": place.state.doing,
            "event": place.state.seq,
            "waiting": place.state.waiting,
            "idle_seconds": place.state.idle_seconds,
        },
    }


def _in_words(place: Place) -> str:
    if place.home is None or place.row is None:
        return "its shard has no home now, so it is not in memory"
    where = f"at {place.home.name}, epoch {place.row.epoch}"
    if place.row.step == "handoff":
        where += ", which hands it over"
    if not place.answered:
        return f"{where}; the node does not answer"
    if place.state is None:
        return f"{where}; not in memory"
    state = place.state
    return f"{where}; in memory, {state.doing}, {state.waiting} commands wait, idle for {state.idle_seconds:.1f} s"


def _message(each: Any) -> dict[str, Any]:
    state = "parked" if each.parked else "timer" if each.key is not None else "message"
    return {
        "id": each.id, "state": state, "what": each.command, "target": f"{each.target_type} {each.target!r}",
        "due": each.due.isoformat(), "failures": each.failures, "key": each.key,
    }  # fmt: skip
