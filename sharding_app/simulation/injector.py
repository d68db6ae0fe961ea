"""Makes the faults of a schedule happen, and ends them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING
from zlib import crc32

from sharding_app.adapters.memory.server import COORDINATOR_LOCK
from sharding_app.core.ids import ShardKey
from sharding_app.core.records import ShardRow
from sharding_app.simulation.clients import Client
from sharding_app.simulation.conditions import TROUBLES, slot_of
from sharding_app.simulation.faults import FORGOTTEN, Fault
from sharding_app.simulation.scheduler import Process
from sharding_app.simulation.virtual_node import VirtualNode

if TYPE_CHECKING:
    from sharding_app.simulation.world import World

Undo = Callable[[], object]

WEATHER = {
    "loss": ("loss", 0.3),
    "duplication": ("duplication", 0.4),
    "reordering": ("reordering", 0.06),
    "delay": ("delay", 0.25),
    "layer_down": ("layer_down", True),
    "slow_store": ("slow_store", 0.6),
    "slow_appends": ("slow_appends", 0.4),
    "failing_store": ("failing_store", 0.6),
    "lost_answers": ("lost_answers", 0.5),
    "late_commits": ("late_commits", 0.5),
    "late_marks": ("late_marks", 0.4),
    "late_deletions": ("late_deletions", 0.5),
    "layer_out": ("layer_down", True),
    "leases_down": ("leases_down", True),
}
"""Kinds that are a field of the conditions, and its value while they last."""

APART_TOO = 0.7
"""So many of the nodes whose lifelines end unheard hear nothing of the other nodes either."""
LATE_TOO, TURN_SECONDS = 0.5, 0.4
"""So many commits are late while the right to end sessions is taken and given back, each for so long."""
REFUSED = 4
"""One row of so many violates the constraint."""
PROMOTED = 0.7
"""So many of the standbys that were away for a while take over in the end."""
BEGIN_MEANWHILE = 0.5
"""In so many of the seeds whose server goes back in time a node begins shortly before."""
ROW_LOOK_SECONDS = 0.01
UNAWARE_SECONDS = 2.2
"""Longer than a lease that nothing renews."""
FORGET_LOOK_SECONDS = 0.2
STRIKE_SECONDS = 1.5
"""So long at most a client is watched for the moment in which its death hurts most."""
STRIKE_LOOK_SECONDS = 0.0005
MOVES = 12
ROLL_LOOK_SECONDS = 0.1
BACK_SECONDS = 8.0
"""A deployment goes on though a node has not come back, after so long."""


class Injector:
    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.pending = 0
        "Faults that have not ended."
        self._random = Random(f"injector {seed}")  # noqa: S311  (replayable on purpose)

    def forget_streams(self) -> None:
        """Let each process forget at once what it knew of a link that it has closed, as it does of the oldest of very many."""
        links = [each.node.links for each in self.world.nodes if each.is_up and each.node is not None]
        links += [each.asking.links for each in self.world.clients if each.started]
        for each in links:
            self.world.coverage.faults[FORGOTTEN] += len(each._book._positions)
            each._book._positions.clear()
        self.world.scheduler.later(FORGET_LOOK_SECONDS, self.forget_streams)

    def plan(self, faults: list[Fault]) -> None:
        for fault in faults:
            self.pending += 1
            self.world.scheduler.later(fault.at, lambda fault=fault: self._begin(fault))  # type: ignore[misc]

    def _begin(self, fault: Fault) -> None:
        undo = self._inject(fault)
        if undo is None:
            self.pending -= 1
            return
        self.world.trace.note("world", None, "FAULT %s", fault)

        def end() -> None:
            undo()
            self.pending -= 1
            self.world.trace.note("world", None, "end of %s", fault.kind)

        self.world.scheduler.later(fault.lasts, end)

    def _inject(self, fault: Fault) -> Undo | None:
        """Do it; None: it has nothing to hit now."""
        if fault.kind in WEATHER:
            field, value = WEATHER[fault.kind]
            conditions = self.world.conditions
            self._count(fault.kind)
            setattr(conditions, field, value)
            return lambda: setattr(conditions, field, type(value)())
        inject: Callable[[Fault, VirtualNode], Undo | None] = getattr(self, f"_{fault.kind}")
        return inject(fault, self.world.nodes[fault.target])

    def _count(self, kind: str) -> None:
        self.world.coverage.faults[kind] += 1

    # -- The channel layer -----------------------------------------------------------------------------------------

    def _partition(self, fault: Fault, node: VirtualNode) -> Undo:
        """The node, perhaps with a client, on one side, all others on the other one."""
        self._count(fault.kind)
        apart = self.world.conditions.apart
        side = [node.name, *(client.name for client in self.world.clients if self._random.random() < 0.3)]
        apart.update(dict.fromkeys(side, 1))
        return apart.clear

    def _one_way(self, fault: Fault, node: VirtualNode) -> Undo:
        self._count(fault.kind)
        mute = self.world.conditions.mute_to
        mute[node.name] = None
        return lambda: mute.pop(node.name, None)

    def _deaf(self, fault: Fault, node: VirtualNode) -> Undo:
        self._count(fault.kind)
        deaf = self.world.conditions.deaf
        deaf[node.name] = None
        return lambda: deaf.pop(node.name, None)

    def _garbage(self, fault: Fault, node: VirtualNode) -> Undo | None:
        """Noise, frames cut short, and frames of long ago, also of those that are dead."""
        if not node.incarnations:
            return None
        self._count("garbage")
        channel = self.world.channel_of(node.incarnations[-1])
        for _ in range(5):
            self.world.network.inject(channel, self._random.randbytes(self._random.randrange(60)))
        for _, data in list(self.world.network.seen):
            self.world.network.inject(channel, data[: self._random.randrange(len(data))])
            self.world.network.inject(channel, data)
        for old, data in list(self.world.network.seen):
            self.world.network.inject(old, data)
        return lambda: None

    # -- Processes -------------------------------------------------------------------------------------------------

    def _crash(self, fault: Fault, node: VirtualNode) -> Undo | None:
        if not node.runs:
            return None
        self._count(fault.kind)
        node.crash()
        return lambda: None if node.runs else node.boot()

    def _crash_coordinator(self, fault: Fault, _: VirtualNode) -> Undo | None:
        node = self.world.coordinator()
        return None if node is None else self._crash(fault, node)

    def _crash_two(self, fault: Fault, node: VirtualNode) -> Undo | None:
        other = self.world.nodes[(fault.target + 1) % len(self.world.nodes)]
        undoes = [undo for undo in (self._crash(fault, node), self._crash(fault, other)) if undo is not None]
        return lambda: [undo() for undo in undoes]

    def _leave_and_rejoin(self, fault: Fault, node: VirtualNode) -> Undo | None:
        if not node.is_up or node.process.stopped:
            return None
        self._count(fault.kind)
        process = node.process
        node.leave()

        def rejoin() -> None:
            if node.runs and node.process is process:
                self.world.scheduler.later(0.5, rejoin)
            elif not node.runs:
                node.boot()

        return rejoin

    def _crash_all(self, fault: Fault, _: VirtualNode) -> Undo:
        """Power failure: every node at once, not the clients."""
        self._count(fault.kind)
        self.world.crash_all()

        def restore() -> None:
            for node in self.world.nodes:
                node.boot()

        return restore

    def _rolling_restart(self, fault: Fault, _: VirtualNode) -> Undo:
        """A deployment: one node after the other leaves in order and comes back with a newer version."""
        self._count(fault.kind)
        self.roll(fault.lasts)
        return lambda: None

    def roll(self, pause: float) -> None:
        """Begin a deployment; it counts as pending until its last node is back."""
        self.pending += 1
        self.world.version += 1
        self._roll(0, pause)

    def _roll(self, number: int, pause: float) -> None:
        world = self.world
        if number == len(world.nodes):
            self.pending -= 1
            return
        node = world.nodes[number]
        node.version = world.version

        def leave() -> None:
            if node.is_up and not node.process.stopped:
                node.leave()
            gone()

        def gone() -> None:
            # One that is down already, or dies on its way, comes back with the new version as well.
            if node.runs and (node.is_leaving or node.process.stopped):
                world.scheduler.later(ROLL_LOOK_SECONDS, gone if node.is_leaving else leave)
                return
            if not node.runs:
                node.boot()
            back(world.now + BACK_SECONDS)

        def back(deadline: float) -> None:
            if not node.is_up and world.now < deadline:
                world.scheduler.later(ROLL_LOOK_SECONDS, lambda: back(deadline))
                return
            world.scheduler.later(pause, lambda: self._roll(number + 1, pause))

        leave()

    def _pause(self, fault: Fault, process: Process) -> Undo | None:
        if process.stopped:
            return None
        self._count(fault.kind)
        process.pause()
        return process.resume

    def _short_pause(self, fault: Fault, node: VirtualNode) -> Undo | None:
        return self._pause(fault, node.process)

    _long_pause = _short_pause
    _lapse = _short_pause

    def _pause_coordinator(self, fault: Fault, _: VirtualNode) -> Undo | None:
        node = self.world.coordinator()
        return None if node is None else self._pause(fault, node.process)

    def _pause_client(self, fault: Fault, _: VirtualNode) -> Undo | None:
        return self._pause(fault, self.world.clients[0].process)

    def _crash_client(self, fault: Fault, _: VirtualNode) -> Undo | None:
        """At best when the effect of a call is stored, and its answer on the way. No peer hears of the end; the users go on
        in the next process, and call again what they are not sure of."""
        world, client = self.world, self._random.choice(self.world.clients)
        if not client.runs:
            return None
        self._count(fault.kind)
        until = world.now + STRIKE_SECONDS

        def strike() -> None:
            if world.now < until and not self._has_taken_effect(client):
                world.scheduler.later(STRIKE_LOOK_SECONDS, strike)
                return
            if client.runs:
                client.crash()
            world.scheduler.later(fault.lasts, boot)

        def boot() -> None:
            client.boot()
            self.pending -= 1

        self.pending += 1
        strike()
        return lambda: None

    def _has_taken_effect(self, client: Client) -> bool:
        """Whether a call that waits for its answer has stored the last event of its entity."""
        for (made, entity), *_, tokens, _ in client.caller.unsure.values():
            entries = self.world.witness.journal.get(f"{made.name}/{entity}")
            if entries and entries[-1].token in tokens:
                return True
        return False

    def _restart_client(self, fault: Fault, _: VirtualNode) -> Undo | None:
        """It tells its peers that it goes, where they hear it."""
        client = self._random.choice(self.world.clients)
        if not client.started or client.process.stopped:
            return None
        self._count(fault.kind)
        process = client.process
        client.loop.create_task(client.leave())

        def boot() -> None:
            if client.process is process and client.runs:
                self.pending += 1
                self.world.scheduler.later(ROLL_LOOK_SECONDS, boot_at_last)
            else:
                client.boot()

        def boot_at_last() -> None:
            boot()
            self.pending -= 1

        return boot

    def _pause_in_append(self, fault: Fault, node: VirtualNode) -> Undo:
        """The next append is sent, and the process is frozen before it can know what became of it."""
        scheduler = self.world.scheduler

        def freeze() -> float:
            self._count("pause_in_append")
            self.world.trace.note(node.name, None, "frozen in the middle of an append")
            process = node.process
            process.pause()
            scheduler.later(fault.lasts, process.resume)
            return self._random.choice((0.001, fault.lasts * self._random.random(), fault.lasts))

        self.world.conditions.on_append[node.name] = freeze
        return lambda: self.world.conditions.on_append.pop(node.name, None)

    def _deposed_in_decide(self, fault: Fault, _: VirtualNode) -> Undo:
        """The coordinator's next decision is under way for long; meanwhile it loses the coordinator's lock."""
        world = self.world

        def depose() -> float:
            self._count("deposed_in_decide")
            world.trace.note("world", None, "the coordinator is deposed while it decides")
            holder = world.server.sessions.holder(COORDINATOR_LOCK)
            if holder is not None:
                world.server.sessions.end(holder)
            return fault.lasts

        world.conditions.on_decide = depose
        return lambda: None

    def _moves(self, fault: Fault, _: VirtualNode) -> Undo:
        """Somebody moves shards around, several times."""
        self._count("moves")
        for number in range(MOVES):
            self.world.scheduler.later(fault.lasts * number / MOVES, self._move)
        return lambda: None

    def _move(self) -> None:
        slot = self.world.coordinator()
        node = slot.node if slot is not None and not slot.process.stopped else None
        if slot is None or node is None or node.coordinator is None:
            return
        keys = sorted(key for key, row in self.world.server.cluster.shards.items() if row.home is not None)
        chosen = self._random.sample(keys, min(len(keys), 3))
        hosts = [each.incarnations[-1] for each in self.world.nodes if each.is_up]
        target = self._random.choice([None, *hosts])
        shell = node.coordinator
        slot.process.loops[0].call_soon_threadsafe(
            lambda: shell.machine.handoffs.begin(chosen, node.ports.clock.now(), target)
        )

    # -- Postgres --------------------------------------------------------------------------------------------------

    def _postgres_restart(self, fault: Fault, _: VirtualNode) -> Undo | None:
        if not self.world.server.up:
            return None
        self._count(fault.kind)
        self.world.server.stop()
        return self.world.server.start

    def _fail_over(self, fault: Fault, _: VirtualNode) -> Undo | None:
        if not self.world.server.up:
            return None
        self._count(fault.kind)
        self.world.server.stop()

        def promote() -> None:
            self.world.server.promote()
            self.world.server.start()

        return promote

    def _standby_away(self, fault: Fault, _: VirtualNode) -> Undo | None:
        """The synchronous standby confirms nothing for a while; then it is back, or it takes over."""
        server = self.world.server
        if not server.up or server.standby.away:
            return None
        self._count(fault.kind)
        server.standby.part()
        promoted = self._random.random() < PROMOTED

        def end() -> None:
            if server.standby.away and promoted:
                server.fail_over()
            elif server.standby.away:
                server.standby.join()

        return end

    def _tail_lost(self, fault: Fault, node: VirtualNode) -> Undo | None:
        """The server goes back in time: a standby takes over that lacks the last of what was acknowledged. In some seeds
        it has a node's row, and nothing that the node has said in it since then."""
        world, server = self.world, self.world.server
        if not server.up or server.standby.away:
            return None
        self._count(fault.kind)
        begins = self._random.random() < BEGIN_MEANWHILE
        over = False
        kept: dict[ShardKey, ShardRow] = {}

        def part() -> None:
            row = server.cluster.members.get(node.incarnations[-1]) if node.incarnations else None
            if over or not server.up or server.standby.away:
                return
            if begins and row is None:
                world.scheduler.later(ROW_LOOK_SECONDS, part)
                return
            server.standby.part(asynchronous=True)
            kept.update(server.cluster.shards)
            self._move()

        def promote() -> None:
            nonlocal over
            over = True
            if server.standby.away:
                self._leave_one_unaware(kept)
                server.fail_over()

        if begins:
            node.crash()
            node.boot()
        part()
        return promote

    def _leave_one_unaware(self, kept: Mapping[ShardKey, ShardRow]) -> None:
        """A node that is the home of a shard by a row that is about to be lost does not hear of it for a while."""
        cut, homes = self.world.conditions.cut_off, dict[str, None]()
        for key, row in self.world.server.cluster.shards.items():
            elsewhere = key not in kept or kept[key].home != row.home
            if row.home is not None and row.step == "home" and elsewhere and slot_of(row.home) not in cut:
                homes[slot_of(row.home)] = None
        if not homes:
            return
        name = self._random.choice(sorted(homes))
        self.world.trace.note(
            name, None, "it is the home of a shard whose row is lost, and does not hear of it"
        )
        cut[name] = None
        self.pending += 1

        def hears() -> None:
            cut.pop(name, None)
            self.pending -= 1

        self.world.scheduler.later(UNAWARE_SECONDS, hears)

    def _lifeline_session_lost(self, fault: Fault, node: VirtualNode) -> Undo | None:
        sessions = node.lifelines()
        if len(sessions) < 2:
            return None
        self._count(fault.kind)
        self.world.server.sessions.end(self._random.choice(sessions))
        return lambda: None

    def _lifelines_lost(self, fault: Fault, node: VirtualNode) -> Undo | None:
        """The server ends both, and the node hears of it, unless it can hear nothing now."""
        sessions = node.lifelines()
        if len(sessions) < 2:
            return None
        self._count(fault.kind)
        for each in sessions:
            self.world.server.sessions.end(each)
        if node.process.stopped or node.name in self.world.conditions.cut_off:
            self.world.overlaps.begins(sessions[0].client)
        return lambda: None

    def _lifelines_unheard(self, fault: Fault, node: VirtualNode) -> Undo | None:
        """Something on the way ends both towards the server, and the node hears of neither. Often it is apart from the other
        nodes besides, with some who call it, so that no word of theirs reaches it."""
        if len(node.lifelines()) < 2:
            return None
        self._count(fault.kind)
        node.lose_lifelines()
        return self._partition(fault, node) if self._random.random() < APART_TOO else lambda: None

    def _line_lost(self, fault: Fault, node: VirtualNode) -> Undo | None:
        """One of a node's connections is lost and cannot be opened again; its lifelines and the others go on."""
        down = self.world.conditions.lines_down
        if node.name in down:
            return None
        self._count(fault.kind)
        down[node.name] = self._random.choice(("journal", "reads", "control"))
        self.world.trace.note(node.name, None, "its line %s is lost", down[node.name])
        return lambda: down.pop(node.name, None)

    def _right_taken(self, fault: Fault, _: VirtualNode) -> Undo:
        """The role may end no session, now and then, while commits are late: what is in doubt stays so, nothing new opens."""
        world = self.world
        self._count(fault.kind)
        world.conditions.late_commits = LATE_TOO
        ends = world.now + fault.lasts

        def turn() -> None:
            world.server.ends_own = not world.server.ends_own
            if world.now + TURN_SECONDS < ends:
                world.scheduler.later(TURN_SECONDS, turn)

        def give_back() -> None:
            world.server.ends_own = True
            world.conditions.late_commits = 0.0

        turn()
        return give_back

    def _server_errors(self, fault: Fault, _: VirtualNode) -> Undo:
        """The server is reached, and answers what writes with errors of its own: each has its part of the time."""
        world, conditions = self.world, self.world.conditions
        self._count(fault.kind)
        left = self._random.sample(TROUBLES, len(TROUBLES))

        def next_one() -> None:
            trouble = conditions.trouble = left.pop()
            world.transition("server", "takes what is written", trouble.state)
            world.trace.note("world", None, "the server answers %s", trouble.state)
            if left:
                world.scheduler.later(fault.lasts / len(TROUBLES), next_one)

        def end() -> None:
            left.clear()
            conditions.trouble = None

        next_one()
        return end

    def _closed_entities(self, fault: Fault, _: VirtualNode) -> Undo:
        """A trigger of a user's raises for the rows of two entities, at once or after long."""
        obstacles, cast = self.world.obstacles, self.world.cast
        closed = [entity for _, entity in self._random.sample([*cast.entities, *cast.tills], 2)]
        self._count(fault.kind)
        for entity in closed:
            self.world.trace.note("world", None, "nothing of %s is taken", entity)
            obstacles.close(entity, self._random.choice((0.0, 0.0, 1.2)))

        def open_again() -> None:
            for entity in closed:
                obstacles.open(entity)

        return open_again

    def _refused_rows(self, fault: Fault, _: VirtualNode) -> Undo:
        """A constraint of a user's refuses some rows: the same ones each time."""
        self._count(fault.kind)
        return self.world.obstacles.refuse(
            lambda row: b"token" in row.payload and not crc32(row.payload) % REFUSED
        )

    def _locked_shards(self, fault: Fault, _: VirtualNode) -> Undo | None:
        """A session of an operator's holds the rows of two shards."""
        obstacles, keys = self.world.obstacles, sorted(self.world.server.cluster.epochs)
        if len(keys) < 2:
            return None
        self._count(fault.kind)
        locked = self._random.sample(keys, 2)
        for key in locked:
            self.world.trace.note("world", None, "the row of shard %d/%d is locked", *key)
            obstacles.lock(*key)

        def unlock() -> None:
            for key in locked:
                obstacles.unlock(*key)

        return unlock

    def _lease_taken(self, fault: Fault, _: VirtualNode) -> Undo | None:
        """Another owner has a lease in which its holder still believes."""
        held = [name for name, row in sorted(self.world.server.leases.items()) if row.owner is not None]
        if not held:
            return None
        name = self._random.choice(held)
        row = self.world.server.leases[name]
        up = (each.incarnations[-1] for each in self.world.nodes if each.is_up)
        others = [each for each in up if each != row.owner]
        if not others:
            return None
        thief = self._random.choice(others)
        self._count(fault.kind)
        self.world.trace.note("world", None, "%s takes %s", thief, name)
        token = row.token = row.token + 1
        row.owner, row.expires_at = thief, self.world.now + fault.lasts
        self.world.beliefs.taken(name)

        def give_back() -> None:
            if row.token == token:
                row.owner = None

        return give_back

    def _cut_off(self, fault: Fault, node: VirtualNode) -> Undo:
        self._count(fault.kind)
        cut = self.world.conditions.cut_off
        cut[node.name] = None
        return lambda: cut.pop(node.name, None)
