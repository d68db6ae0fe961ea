"""Writes down what a virtual cluster does: each message between processes and each row that
changes, in order.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from sharding_app.adapters.memory.message_rows import MessageRows
from sharding_app.adapters.memory.server import COORDINATOR_LOCK
from sharding_app.adapters.memory.sessions import Session
from sharding_app.adapters.memory.steps import Steps, Told
from sharding_app.ports.journal import History
from sharding_app.protocol.codec import decode_frame
from sharding_app.protocol.ids import Incarnation
from sharding_app.protocol.liveness.locks import lifeline_keys
from sharding_app.protocol.messages import AnyMessage, Echo
from sharding_app.protocol.records import Member, ShardRow
from sharding_app.runtime.hosting.entities import EntityLife
from sharding_app.runtime.hosting.type_host import TypeHost
from sharding_app.runtime.journal.commits import Resident
from sharding_app.runtime.links.links import Links
from sharding_app.testing.simulation.world import World
from tests.simulation.golden import words
from tests.simulation.golden.words import Rows

RULES = """\
A line is one message (`a -> b`, when it leaves a), one change of a row (`writes`; rows below one
`writes` are one transaction), a write that PostgreSQL refuses (`fails`), or a look-up on which
something depends (`reads`). Advisory locks are shown as rows; `postgres` frees them when a session
ends. `n2.2` is the second run of n2, and `web` is a process that only asks.

These are left out: acknowledgements of links, and frames that are sent again; a message that is
repeated in the same words; the message of a node to itself through the layer (Echo); pings;
look-ups that bring nothing new; fields that have their defaults; texts for people; times, pids and
connections, which differ from run to run."""
SERVER = "postgres"
LOCK = "lock"


class Observer:
    """Looks at the network, at what processes say to themselves, and at the server before and after
    each request.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._names = words.Names()
        self._lines: list[str] = []
        self.writes = False
        "Since `begin`."
        self._said: set[tuple[str, str]] = set()
        "Messages of this part, and their ways."
        self._frames: set[tuple[Incarnation, Incarnation, int, int]] = set()
        self._rows: Rows = {}
        self._members: dict[str, Rows] = {}
        "The members that each process has read last."

    @contextmanager
    def watching(self) -> Iterator[None]:
        network, server = self._world.network, self._world.server
        send, execute, hand_over = network.send, server.execute, Links._hand_over
        finish, let_go = TypeHost.finished, EntityLife._let_go

        def sent(client: str, channel: str, data: bytes) -> None:
            frame = decode_frame(data)
            number = frame.source, frame.target, frame.stream, frame.seq
            if frame.seq == 0 or number not in self._frames:
                self._frames.add(number)
                self._messages(frame.source, frame.target, frame.body)
            send(client, channel, data)

        def handed_over(links: Links, source: Incarnation, messages: list[AnyMessage]) -> None:
            if source == links.incarnation:
                self._messages(source, source, messages)
            hand_over(links, source, messages)

        def finished(host: TypeHost, slot: Resident) -> None:
            stops, entity = slot.passivating, slot.entity
            finish(host, slot)
            if stops and entity is not None and slot.entity is not entity:
                self._dropped(host.me, slot)

        def went(life: EntityLife, slot: Resident) -> None:
            assert isinstance(life._host, TypeHost)
            self._dropped(life._host.me, slot)
            let_go(life, slot)

        def executed(session: Session, kind: str, request: Callable[[], Steps[Any]], told: Told) -> None:
            def heard(outcome: object, failed: bool) -> None:
                self._written(session.client)
                if not failed:
                    self._read(session.client, kind, outcome)
                elif kind in ("append", "decide"):
                    self.line(f"{session.client} fails", f"{kind}: {type(outcome).__name__}")
                told(outcome, failed)

            self._written(SERVER)
            execute(session, kind, request, heard)

        with (
            patch.object(network, "send", sent),
            patch.object(server, "execute", executed),
            patch.object(Links, "_hand_over", handed_over),
            patch.object(TypeHost, "finished", finished),
            patch.object(EntityLife, "_let_go", went),
        ):
            yield

    def begin(self) -> None:
        """Write down what is there, and from now on all that happens."""
        self._rows = self._look()
        now = _members(self._world.server.cluster.with_locks(), "locks")
        self._members = dict.fromkeys(self._members, now)
        self.writes = True
        self.heading("At the beginning")
        for key, fields in sorted(self._rows.items()):
            if key[0].startswith("sharding_") and key[0] != "sharding_decision":
                self._lines += self._names.line(words.row(key, words.listed(fields)), "")

    def heading(self, text: str) -> None:
        """Begin a part."""
        self._written(SERVER)
        self._said.clear()
        if self.writes:
            self._lines += ["", *textwrap.wrap(text, words.WIDTH)]

    def line(self, who: str, text: str) -> None:
        if self.writes:
            self._lines += self._names.line(who, text)

    def text(self) -> str:
        return "\n".join(self._lines).strip() + "\n"

    def _messages(self, source: Incarnation, target: Incarnation, messages: Sequence[AnyMessage]) -> None:
        self._written(SERVER)
        for message in messages:
            said = f"{source} -> {target}", words.value(message)
            if not isinstance(message, Echo) and said not in self._said:
                self._said.add(said)
                self.line(*said)

    def _dropped(self, who: Incarnation, slot: Resident) -> None:
        self.line(who, f"drops {slot.id} from memory")

    def _written(self, who: str) -> None:
        """Write down what has changed since the last look: one transaction, or what the server did
        by itself.
        """
        before, self._rows = self._rows, self._look()
        former = ""
        for key, text in words.changes(before, self._rows):
            by = SERVER if key[0] == LOCK and key not in self._rows else who
            verb = by if by == SERVER else f"{by} writes"
            self.line(verb if verb != former else "", text)
            former = verb

    def _read(self, who: str, kind: str, outcome: Any) -> None:
        """Write down what a look-up has brought."""
        verb = f"{who} reads"
        match kind:
            case "members":
                found = _members(outcome[1], "locks")
                for _, text in words.changes(self._members.get(who, found), found):
                    self.line(verb, text)
                self._members[who] = found
            case "homes":
                self._homes(verb, outcome)
            case "come_back" if outcome is not None:
                self._homes(verb, outcome[1])
            case "read" | "recall":
                for key, found in outcome.items():
                    self.line(verb, _recovered(key, found))
            case "outcome":
                for found in filter(None, outcome):
                    reply = words.value(words.columns(found, ["reply"])["reply"])
                    self.line(
                        verb, f"sharding_event: the command is event {found.seq} and was answered {reply}"
                    )

    def _homes(self, verb: str, rows: Sequence[ShardRow]) -> None:
        for row in rows:
            text = words.listed(words.columns(row, words.OF_A_SHARD))
            self.line(verb, words.row(("sharding_shard", _key(row)), text))

    def _look(self) -> Rows:
        server = self._world.server
        cluster, journal = server.cluster, server.journal
        names = {number: name for name, number in cluster.type_ids.items()}
        term = {"term": cluster.coordinator.term, "node": cluster.coordinator.incarnation}
        rows: Rows = {("sharding_coordinator", ""): term, **_members(cluster.members.values())}
        for shard in cluster.shards.values():
            rows["sharding_shard", _key(shard)] = words.columns(shard, words.OF_A_SHARD)
        for (type_id, entity), events in journal.events.items():
            for seq, (event, _) in events.items():
                rows["sharding_event", f"{names[type_id]}/{entity}/{seq}"] = words.columns(
                    event, words.OF_AN_EVENT
                )
        rows |= _messages(server.messages, names)
        for (type_id, number), entities in journal.remembered.items():
            rows |= {("sharding_remembered", f"{names[type_id]}/{number}/{each}"): {} for each in entities}
        for (type_id, entity), snapshots in journal.snapshots.items():
            rows |= {("sharding_snapshot", f"{names[type_id]}/{entity}/{seq}"): {} for seq in snapshots}
        for name, lease in server.leases.items():
            rows["sharding_lease", name] = {"owner": lease.owner, "token": lease.token}
        for number, decision in enumerate(cluster.timeline, 1):
            rows["sharding_decision", str(number)] = words.columns(decision, words.OF_A_DECISION)
        locks = {"of the coordinator": COORDINATOR_LOCK}
        for incarnation in (each for node in self._world.nodes for each in node.incarnations):
            for number, lock in enumerate(lifeline_keys(server.cluster_id, incarnation), 1):
                locks[f"{number} of {incarnation}"] = lock
        for name, lock in locks.items():
            if (holder := server.sessions.holder(lock)) is not None:
                rows[LOCK, name] = {"holder": holder.client}
        return rows


def _members(members: Iterable[Member], *more: str) -> Rows:
    names = *words.OF_A_NODE, *more
    return {("sharding_node", each.incarnation): words.columns(each, names) for each in members}


def _messages(messages: MessageRows, names: Mapping[int, str]) -> Rows:
    rows = (each.row for each in messages.rows.values())
    return {
        ("sharding_message", f"{names[row.type_id]}/{row.entity}/{row.seq}.{row.position}"): words.columns(
            row, words.OF_A_MESSAGE
        )
        for row in rows
    }


def _key(row: ShardRow) -> str:
    return f"{row.type}/{row.shard}"


def _recovered(key: object, found: object) -> str:
    if isinstance(found, History):
        return f"sharding_event: {len(found.events)} rows of {key}"
    return f"sharding_remembered: {words.value(found)} of shard {key}"
