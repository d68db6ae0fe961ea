"""The present conditions between processes and servers: policies for the virtual servers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from sharding_app.adapters.memory.faults import Plan
from sharding_app.adapters.memory.sessions import ServerError
from sharding_app.adapters.memory.steps import Pause
from sharding_app.ports.transport import PeerUnreachable


def slot_of(client: str) -> str:
    """Return the name of a process, whatever its incarnation."""
    return client.rpartition("-")[0]


LOST: tuple[float, ...] = ()
OF_MESSAGES = frozenset({"stage", "discard", "set_aside", "park", "turn"})
WRITES = frozenset(
    {
        "append", "decide", "save_snapshots", "remember", "acquire_leases", "release_leases", "projection", *OF_MESSAGES,
        "move_rows", "switch_shards",
    }
)  # fmt: skip
DELETIONS = frozenset({"archive", "erase", "save_snapshots", "trim", "forget_states"})
LINES: dict[str, frozenset[str]] = {
    "journal": frozenset({"open_journal", "append", "secure", "take"}),
    "reads": frozenset(
        {
            "open_reads", "own", "read", "read_from", "read_last", "read_snapshot", "last_seq", "is_home", "locked", "outcome", "settle", "remember", "recall",
            "remembered_shards", "stored_shards", "trimmable", "due", "overdue", *OF_MESSAGES, *DELETIONS,
        }
    ),
    "control": frozenset(
        {
            "open_control", "cluster_id", "register_types", "type_ids", "types", "join", "update_member", "leave", "members",
            "coordinator", "shards", "homes", "home_counts", "locate", "locations", "ask_to", "decide", "bury", "record",
            "come_back", "news", "journals_to_read", "restore_shards", "introduce_workers", "workers", "rescale", "put_in_force", "resize", "renumber", "refile",
            "begin_move", "close_shards", "renew_closings", "open_shards", "fence_shards", "closed_shards", "open_lapsed",
        }
    ),
}  # fmt: skip
"""Requests of a node's connections, by connection; lifelines aside."""
WRITE_KINDS = frozenset(
    {
        "append", "secure", "take", "remember", "projection", *OF_MESSAGES, *DELETIONS, "register_types", "join", "update_member", "come_back", "leave", "locate",
        "restore_shards", "ask_to", "introduce_workers", "rescale", "put_in_force", "resize", "renumber", "refile",
        "begin_move", "close_shards", "renew_closings", "open_shards", "fence_shards", "move_rows", "switch_shards", "open_lapsed", "decide", "bury", "record", "raise_term", "acquire_leases", "renew_leases", "release_leases",
    }
)  # fmt: skip
OF_EVENTS = frozenset(
    {
        "append", "read", "read_from", "read_last", "last_seq", "outcome", "archive", "erase", "trim", "trimmable", "forget_states",
    }
)  # fmt: skip


class Trouble(NamedTuple):
    """An error with which the server answers requests of some kinds, instead of executing them."""

    state: str
    reason: str
    kinds: frozenset[str]
    share: float = 1.0
    "Of those requests."
    seconds: float = 0.0
    "Seconds that the server tries before it answers so."


TROUBLES = (
    Trouble("53100", "could not extend file: no space left on device", WRITE_KINDS),
    Trouble("25006", "cannot execute this in a read-only transaction", WRITE_KINDS),
    Trouble("40001", "could not serialize access due to concurrent update", WRITE_KINDS, share=0.4),
    Trouble("55P03", "canceling statement due to lock timeout", OF_EVENTS, seconds=0.2),
)
"""A full disk, a server that only reads, transactions that collide, a table that is locked."""
LOOK_UPS_FAIL = Trouble("57014", "canceling statement due to statement timeout", frozenset({"outcome"}))
STEP_SECONDS = 0.001
"""Most steps of a transaction take less than this."""
STALLS, STALL_SECONDS = 0.03, 0.5
"""This share of the steps takes up to this long: longer than the journal waits for a row."""
LOST_STEPS = 0.3
"""This share of the steps of resizes is lost on its way, or its answer is."""
OF_LEASES = frozenset({"acquire_leases", "renew_leases", "release_leases"})


class Conditions:
    """Implements `NetworkFaults` and `ServerFaults`. Faults set and reset its fields."""

    def __init__(self, seed: int, happened: Counter[str], name: str = "") -> None:
        """`name`: of the journal whose server is meant; empty: the cluster's own."""
        self._seed = seed
        self._random = Random(f"weather {seed}{name}")
        self._steps = Random(f"steps {seed}{name}")
        self._happened = self.happened = happened
        "Counts each kind of fault, once for each message or request that it hits."
        self._others: list[Conditions] = []
        "Those at the servers of further journals."
        self.loss = 0.0
        self.duplication = 0.0
        self.reordering = 0.0
        self.delay = 0.0
        self.layer_down = False
        self.direct = False
        "Processes do not need the layer."
        self.apart: dict[str, int] = {}
        "Clients by their side of the partition. A client that is not named is on side 0."
        self.mute_to: dict[str, None] = {}
        "Clients that reach no other process, though they are reached."
        self.deaf: dict[str, None] = {}
        self.full: dict[str, None] = {}
        "Clients whose channels take nothing more. The sender gets an error."
        self.slow_store = 0.0
        self.slow_appends = 0.0
        self.steady_seconds = 0.0
        "Duration that each request for events takes more: the server is slow, and well."
        self.failing_store = 0.0
        self.lost_answers = 0.0
        self.late_commits = 0.0
        self.late_marks = 0.0
        "Like late commits, for marks of remembered entities, which are few."
        self.late_deletions = 0.0
        "Like late commits, for erasures and for snapshots."
        self.trouble: Trouble | None = None
        "The server is reached, and answers with errors."
        self.stalls = STALLS
        "Share of the steps of transactions that take long."
        self.lost_steps = LOST_STEPS
        self.leases_down = False
        self.lines_down: dict[str, str] = {}
        "By client: the one connection whose requests are all lost, while the others work."
        self.slow_nodes: dict[str, None] = {}
        "Clients whose frames and requests all take long, both ways."
        self.slow_pings: dict[str, None] = {}
        "Clients whose lifelines get late answers, and nothing else does."
        self.cut_off: dict[str, None] = {}
        self.on_append: dict[str, Callable[[], float]] = {}
        "By client: called when its next append is under way; returns the duration of that append."
        self._held_up: dict[tuple[str, str], float] = {}
        "Requests with one step that takes this long."
        self.on_decide: Callable[[], float] | None = None
        "The same for the next decision, on whichever node coordinates."
        self.answer_seconds = 1.5
        "A client gives a request up after this time."

    def of_journal(self, name: str) -> Conditions:
        """Return the conditions at the server of a further journal.

        Processes are the same: one that is slow is so towards each server.
        """
        found = Conditions(self._seed, Counter(), name)
        found.slow_nodes = self.slow_nodes
        self._others.append(found)
        return found

    def everywhere(self) -> Sequence[Conditions]:
        """Return the conditions at all servers of journals."""
        return self, *self._others

    def heal(self) -> None:
        """Let everything work from now on."""
        for other in self._others:
            other.heal()
        self.loss = self.duplication = self.reordering = self.delay = 0.0
        self.slow_store = self.slow_appends = self.failing_store = self.lost_answers = self.late_commits = 0.0
        self.late_marks = self.late_deletions = self.stalls = self.lost_steps = self.steady_seconds = 0.0
        self.layer_down = self.leases_down = False
        self.on_decide = self.trouble = None
        self._held_up.clear()
        for each in (
            self.apart, self.mute_to, self.deaf, self.full, self.slow_nodes, self.cut_off, self.slow_pings, self.lines_down, self.on_append,
        ):  # fmt: skip
            each.clear()

    # -- The channel layer -------------------------------------------------------------------------

    def refuses(self, client: str) -> bool:
        if self.direct or not self.layer_down:
            return False
        self._happened["layer_down"] += 1
        return True

    def route(self, client: str, channel: str) -> Sequence[float]:
        chance = self._random.random
        delay = 0.0002 + chance() * 0.001
        source, target = slot_of(client), slot_of(channel.rpartition(".")[2])
        if target in self.full:
            self._happened["full_channel"] += 1
            raise PeerUnreachable("the receiver's channel is full")
        if target in self.deaf:
            self._happened["deaf"] += 1
            return LOST
        if target != source:
            if self.apart and self.apart.get(source, 0) != self.apart.get(target, 0):
                self._happened["partition"] += 1
                return LOST
            if source in self.mute_to:
                self._happened["one_way"] += 1
                return LOST
        if self.loss and chance() < self.loss:
            self._happened["loss"] += 1
            return LOST
        if self.delay:
            self._happened["delay"] += 1
            delay += self.delay
        if self.slow_nodes and (source in self.slow_nodes or target in self.slow_nodes):
            self._happened["leave_slowly"] += 1
            delay += 0.2 + chance() * 0.4
        if self.reordering and chance() < 0.5:
            self._happened["reordering"] += 1
            delay += chance() * self.reordering
        if self.duplication and chance() < self.duplication:
            self._happened["duplication"] += 1
            return (delay, delay + chance() * 0.2)
        return (delay,)

    def answers(self, client: str, other: str) -> bool:
        """Whether a ping of one node comes back from another."""
        ends = slot_of(client), slot_of(other)
        return (
            self.apart.get(ends[0], 0) == self.apart.get(ends[1], 0)
            and self.mute_to.keys().isdisjoint(ends)
            and self.deaf.keys().isdisjoint(ends)
            and self.full.keys().isdisjoint(ends)
        )

    # -- Postgres ----------------------------------------------------------------------------------

    def plan(self, client: str, kind: str) -> Plan:
        chance = self._random.random
        there, back = 0.0002 + chance() * 0.0008, 0.0002 + chance() * 0.0004
        source = slot_of(client)
        if source in self.cut_off:
            self._happened["cut_off"] += 1
            return Plan(None, None, self.answer_seconds)
        if kind == "heard":
            return Plan(there, back)
        if self.slow_store:
            self._happened["slow_store"] += 1
            there += chance() * self.slow_store
        if self.steady_seconds and kind in OF_EVENTS:
            there += self.steady_seconds
        if source in self.slow_nodes:
            there += 0.2 + chance() * 0.5
        found = (
            self._refused(source, kind, there)
            or self._in_trouble(kind, there, back)
            or self._on_purpose(client, kind, back)
            or self._late(source, kind, there, back)
        )
        if found is not None:
            return found
        return Plan(there, back, self.answer_seconds if there + back >= self.answer_seconds else None)

    def pace(self, client: str, kind: str, step: Pause) -> float:
        """Return the duration of a step of a transaction."""
        chance = self._steps.random()
        if self._held_up and (kind != "append" or step is Pause.COMMIT or chance < 0.5):
            seconds = self._held_up.pop((client, kind), 0.0)
            if seconds:
                self._happened[f"held up at {step.value}"] += 1
                return seconds
        if chance < self.stalls:
            self._happened["stall"] += 1
            return chance / self.stalls * STALL_SECONDS
        return chance * chance * STEP_SECONDS

    def _refused(self, source: str, kind: str, there: float) -> Plan | None:
        """Return the plan of a request that never arrives, else None."""
        why = ""
        if self.lines_down and kind in LINES.get(self.lines_down.get(source, ""), ()):
            why = "line_lost"
        elif self.failing_store and self._random.random() < self.failing_store:
            why = "failing_store"
        elif self.leases_down and kind in OF_LEASES:
            why = "leases_down"
        if not why:
            return None
        self._happened[why] += 1
        return Plan(None, None, there)

    def _in_trouble(self, kind: str, there: float, back: float) -> Plan | None:
        """Return the plan of a request that is answered with an error, else None."""
        trouble = self.trouble
        if trouble is None or kind not in trouble.kinds:
            return None
        if trouble.share < 1.0 and self._random.random() >= trouble.share:
            return None
        self._happened["server_errors"] += 1
        return Plan(there, back, error=ServerError(trouble.state, trouble.reason, trouble.seconds))

    def _on_purpose(self, client: str, kind: str, back: float) -> Plan | None:
        """Return the plan of a request that a fault is aimed at, else None."""
        source = slot_of(client)
        if kind == "append" and source in self.on_append:
            return self._long(client, kind, self.on_append.pop(source)(), back)
        if kind == "decide" and self.on_decide is not None:
            happens, self.on_decide = self.on_decide, None
            return self._long(client, kind, happens(), back)
        if kind == "renumber" and self._random.random() < self.lost_steps:
            self._happened["lost_steps"] += 1
            return Plan(0.0002 if self._random.random() < 0.5 else None, None, back)
        return None

    def _long(self, client: str, kind: str, seconds: float, back: float) -> Plan:
        """Let a request take this long, on its way or in the middle of its execution."""
        if self._random.random() < 0.5:
            return Plan(seconds, back, None)
        self._held_up[client, kind] = seconds
        return Plan(0.0002, back, None)

    def _late(self, source: str, kind: str, there: float, back: float) -> Plan | None:
        """Return the plan of a request that executes late or without an answer, else None.

        Late: maybe after the client has given up.
        """
        chance = self._random.random
        if kind == "ping" and source in self.slow_pings:
            self._happened["slow_pings"] += 1
            return Plan(there, 0.8 + chance() * 0.6)
        if kind == "append" and self.slow_appends and chance() < self.slow_appends:
            self._happened["slow_appends"] += 1
            return Plan(there + 0.5 + chance() * 2.0, back, None)
        if kind == "remember" and self.late_marks and chance() < self.late_marks:
            self._happened["late_marks"] += 1
            return Plan(there + chance() * 1.5, back, there)
        if kind in DELETIONS and self.late_deletions and chance() < self.late_deletions:
            self._happened["late_deletions"] += 1
            return Plan(there + chance() * 2.0, back, there)
        if kind in WRITES:
            if self.late_commits and chance() < self.late_commits:
                self._happened["late_commits"] += 1
                return Plan(chance() * (1.5 if chance() < 0.5 else 0.01), back, there)
            if self.lost_answers and chance() < self.lost_answers:
                self._happened["lost_answers"] += 1
                return Plan(there, None, there + back)
        return None
