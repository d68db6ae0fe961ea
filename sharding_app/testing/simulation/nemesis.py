"""Injects the faults of a schedule, and ends them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import count
from random import Random
from typing import TYPE_CHECKING
from zlib import crc32

from sharding_app.adapters.memory.server import COORDINATOR_LOCK
from sharding_app.protocol.ids import Incarnation, ShardKey
from sharding_app.protocol.records import ShardRow
from sharding_app.testing.simulation.clients import Client
from sharding_app.testing.simulation.fault_policy import TROUBLES, slot_of
from sharding_app.testing.simulation.faults import FORGOTTEN, LAST_SECONDS, Fault
from sharding_app.testing.simulation.loop import Process
from sharding_app.testing.simulation.promises import PromiseBroken
from sharding_app.testing.simulation.virtual_node import DRIFT, LIFELINE, VirtualNode

if TYPE_CHECKING:
    from sharding_app.testing.simulation.overlaps import Overlap
    from sharding_app.testing.simulation.world import World

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
"""Kinds of faults that are a field of the conditions, with its value while they last."""

APART_TOO = 0.7
"""Share of the nodes with lifelines that end unheard which hear nothing of other nodes either."""
LATE_TOO, TURN_SECONDS = 0.5, 0.4
"""Share of late commits while the right to end sessions is taken and given back, and length of a
turn.
"""
REFUSED = 4
"""One row in this many violates the constraint."""
PROMOTED = 0.7
"""Share of the standbys that were away for a while and take over in the end."""
BEGIN_MEANWHILE = 0.5
"""Share of the seeds with a server that goes back in time in which a node begins shortly before."""
ROW_LOOK_SECONDS = 0.01
UNAWARE_SECONDS = 2.2
"""Longer than a lease that nothing renews."""
FORGET_LOOK_SECONDS = 0.2
STRIKE_SECONDS = 1.5
"""Most seconds in which a client is watched for the moment in which its death hurts most."""
STRIKE_LOOK_SECONDS = 0.0005
MOVES = 12
ROLL_LOOK_SECONDS = 0.1
BACK_SECONDS = 8.0
"""A deployment goes on after this time though a node has not come back."""


class Injector:
    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.pending = 0
        "Faults that have not ended."
        self._random = Random(f"injector {seed}")
        self._begin_until = 0.0
        "Time at which the last fault may begin."
        self._on_the_way: dict[Process, Overlap] = {}
        "Overlaps of nodes whose lifelines have ended, and that are about to hear of it."

    def forget_streams(self) -> None:
        """Let each process forget its closed links at once, as it does if they are very many."""
        links = [each.node.links for each in self.world.nodes if each.is_up and each.node is not None]
        links += [each.asking.links for each in self.world.clients if each.started]
        for each in links:
            self.world.coverage.faults[FORGOTTEN] += len(each._table._positions)
            each._table._positions.clear()
        self.world.scheduler.later(FORGET_LOOK_SECONDS, self.forget_streams)

    def plan(self, faults: list[Fault]) -> None:
        self._begin_until = self.world.now + LAST_SECONDS
        for fault in faults:
            self.pending += 1
            self.world.scheduler.later(fault.at, lambda fault=fault: self._begin(fault))  # type: ignore[misc]

    def turns(self) -> Iterator[int]:
        """Number the turns of a user, until all faults have ended and none may begin."""
        for turn in count():
            if not self.pending and self.world.now >= self._begin_until:
                return
            yield turn

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
        """Inject a fault. Return its end; None: there is nothing to hit now."""
        if fault.kind in WEATHER:
            field, value = WEATHER[fault.kind]
            conditions = self.world.conditions_of[fault.journal]
            self._count(fault.kind, fault.journal)
            setattr(conditions, field, value)
            return lambda: setattr(conditions, field, type(value)())
        special = f"_{fault.kind}_of_a_journal"
        name = special if fault.journal and hasattr(self, special) else f"_{fault.kind}"
        inject: Callable[[Fault, VirtualNode], Undo | None] = getattr(self, name)
        return inject(fault, self.world.nodes[fault.target])

    def _count(self, kind: str, journal: str = "") -> None:
        self.world.coverage.faults[f"{kind} of a journal" if journal else kind] += 1

    # -- The channel layer -------------------------------------------------------------------------

    def _partition(self, fault: Fault, node: VirtualNode) -> Undo:
        """Put the node, perhaps with clients, on one side, and all others on the other."""
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

    def _full_channel(self, fault: Fault, node: VirtualNode) -> Undo:
        """Let the layer take nothing more for one node, its own messages included."""
        self._count(fault.kind)
        full = self.world.conditions.full
        full[node.name] = None
        return lambda: full.pop(node.name, None)

    def _garbage(self, fault: Fault, node: VirtualNode) -> Undo | None:
        """Inject noise, frames cut short, and old frames, also of dead incarnations."""
        if not node.incarnations:
            return None
        self._count("garbage")
        channel = self.world.channel_of(node.incarnations[-1])
        if self.world.network.knock(channel):
            self.world.broke(PromiseBroken(12, "no_strangers", f"{channel} is open to another cluster"))
        for _ in range(5):
            self.world.network.inject(channel, self._random.randbytes(self._random.randrange(60)))
        for _, data in list(self.world.network.seen):
            self.world.network.inject(channel, data[: self._random.randrange(len(data))])
            self.world.network.inject(channel, data)
        for old, data in list(self.world.network.seen):
            self.world.network.inject(old, data)
        return lambda: None

    # -- Processes ---------------------------------------------------------------------------------

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

    def _leave_slowly(self, fault: Fault, node: VirtualNode) -> Undo | None:
        """Let a node leave in order, so slowly that its hand-offs take too long."""
        rejoin = self._leave_and_rejoin(fault, node)
        if rejoin is None:
            return None
        slow = self.world.conditions.slow_nodes
        slow[node.name] = None

        def end() -> None:
            slow.pop(node.name, None)
            rejoin()

        return end

    def _crash_all(self, fault: Fault, _: VirtualNode) -> Undo:
        """Power failure: all nodes die at once, but no clients."""
        self._count(fault.kind)
        self.world.crash_all()

        def restore() -> None:
            for node in self.world.nodes:
                node.boot()

        return restore

    def _rolling_restart(self, fault: Fault, _: VirtualNode) -> Undo:
        """Deploy: one node after the other leaves in order and comes back with a newer version."""
        self._count(fault.kind)
        self.roll(fault.lasts)
        return lambda: None

    def roll(self, pause: float) -> None:
        """Begin a deployment. It counts as pending until its last node is back."""
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
            # A node that is down already, or dies on its way, comes back with the new version too.
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
        self._hears_no_more(process)
        process.pause()
        return process.resume

    def _hears_no_more(self, process: Process) -> None:
        """Note that a node is paused while the end of its lifelines is still on its way."""
        overlap = self._on_the_way.pop(process, None)
        if overlap is not None and any(
            each.process is process
            and each.node is not None
            and each.node.incarnation == overlap.incarnation
            and self.world.is_valid(each.node)
            for each in self.world.nodes
        ):
            self.world.overlaps.has_begun(overlap)

    def _short_pause(self, fault: Fault, node: VirtualNode) -> Undo | None:
        return self._pause(fault, node.process)

    _long_pause = _short_pause
    _lapse = _short_pause

    def _blocked_loop(self, fault: Fault, node: VirtualNode) -> Undo | None:
        """Block the node's loop, as a user's function does: only its lifeline goes on."""
        if not node.is_up:
            return None
        self._count(fault.kind)
        process = node.process
        process.block()
        return process.unblock

    def _pause_coordinator(self, fault: Fault, _: VirtualNode) -> Undo | None:
        node = self.world.coordinator()
        return None if node is None else self._pause(fault, node.process)

    def _pause_client(self, fault: Fault, _: VirtualNode) -> Undo | None:
        return self._pause(fault, self.world.clients[0].process)

    def _crash_client(self, fault: Fault, _: VirtualNode) -> Undo | None:
        """Kill a client, if possible when a call's effect is stored and its answer is on the way.

        No peer hears of the end. The users go on in the next process, and repeat the calls that
        they are not sure of.
        """
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
        for unsure in client.caller.unsure.values():
            made, entity = unsure.entity
            entries = self.world.witness.journal.get(f"{made.name}/{entity}")
            if entries and entries[-1].token in unsure.said.tokens:
                return True
        return False

    def _restart_client(self, fault: Fault, _: VirtualNode) -> Undo | None:
        """Restart a client in order: it says goodbye to the peers that hear it."""
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
        """Freeze the process when its next append is sent, before it can know the outcome."""
        scheduler, on_append = self.world.scheduler, self.world.conditions_of[fault.journal].on_append

        def freeze() -> float:
            self._count(fault.kind, fault.journal)
            self.world.trace.note(node.name, None, "frozen in the middle of an append")
            process = node.process
            process.pause()
            scheduler.later(fault.lasts, process.resume)
            return self._random.choice((0.001, fault.lasts * self._random.random(), fault.lasts))

        on_append[node.name] = freeze
        return lambda: on_append.pop(node.name, None)

    def _deposed_in_decide(self, fault: Fault, _: VirtualNode) -> Undo:
        """Let the coordinator lose its lock during its next decision, which takes long."""
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
        """Move shards around several times, as an operator would."""
        self._count("moves")
        for number in range(MOVES):
            self.world.scheduler.later(fault.lasts * number / MOVES, self._move)
        return lambda: None

    def _move(self) -> None:
        keys = sorted(key for key, row in self.world.server.cluster.shards.items() if row.home is not None)
        hosts = [each.incarnations[-1] for each in self.world.nodes if each.is_up]
        slot = self.world.coordinator()
        if slot is not None and not slot.process.stopped:
            self.move(self._random.sample(keys, min(len(keys), 3)), self._random.choice([None, *hosts]))

    def move(self, keys: list[ShardKey], target: Incarnation | None) -> None:
        """Have the coordinator, if there is one, move shards."""
        slot = self.world.coordinator()
        node = slot.node if slot is not None and not slot.process.stopped else None
        if slot is None or node is None or node.coordinator is None:
            return
        shell = node.coordinator
        slot.process.loops[0].call_soon_threadsafe(
            lambda: shell.machine.handoffs.begin(keys, node.ports.clock.now(), target)
        )

    # -- Postgres ----------------------------------------------------------------------------------

    def _postgres_restart(self, fault: Fault, _: VirtualNode) -> Undo | None:
        server = self.world.servers[fault.journal]
        if not server.up:
            return None
        self._count(fault.kind, fault.journal)
        server.stop()
        return server.start

    def _fail_over(self, fault: Fault, _: VirtualNode) -> Undo | None:
        server = self.world.servers[fault.journal]
        if not server.up:
            return None
        self._count(fault.kind, fault.journal)
        server.stop()

        def promote() -> None:
            if not server.up:  # another fault may have put one in its place
                server.promote()
                server.start()

        return promote

    def _standby_away(self, fault: Fault, _: VirtualNode) -> Undo | None:
        """Take the synchronous standby away for a while; then it is back, or it takes over."""
        server = self.world.servers[fault.journal]
        if not server.up or server.standby.away:
            return None
        self._count(fault.kind, fault.journal)
        server.standby.part()
        promoted = self._random.random() < PROMOTED

        def end() -> None:
            if server.standby.away and promoted:
                server.fail_over()
            elif server.standby.away:
                server.standby.join()

        return end

    def _tail_lost_of_a_journal(self, fault: Fault, _: VirtualNode) -> Undo | None:
        """Let a further journal go back in time, with takes of shards that are moved meanwhile."""
        server = self.world.servers[fault.journal]
        if not server.up or server.standby.away:
            return None
        self._count(fault.kind, fault.journal)
        over = False

        def part() -> None:
            if over or not server.up or server.standby.away:
                return
            if self.world.switches:
                self.world.scheduler.later(ROW_LOOK_SECONDS, part)
                return
            server.standby.part(asynchronous=True)
            self._move()

        def promote() -> None:
            nonlocal over
            over = True
            if server.standby.away:
                self.world.registry.is_losing_its_tail(server)
                self.world.witness.messages.is_losing_its_tail(server)
                server.fail_over()

        part()
        return promote

    def _connections_broken(self, fault: Fault, _: VirtualNode) -> Undo:
        """Break all connections to a further journal, again and again. Its server stays up."""
        world, server = self.world, self.world.servers[fault.journal]
        self._count(fault.kind, fault.journal)
        ends = world.now + fault.lasts

        def end_all() -> None:
            server.sessions.end_all()
            if world.now + TURN_SECONDS < ends:
                world.scheduler.later(TURN_SECONDS, end_all)

        end_all()
        return lambda: None

    def _tail_lost(self, fault: Fault, node: VirtualNode) -> Undo | None:
        """Let the server go back in time: a standby takes over that lacks the last rows.

        These rows were acknowledged. In some seeds the standby has a node's row, but none of the
        node's later changes of it.
        """
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
            if world.switches or (begins and row is None):
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
                world.witness.is_losing_its_tail()
                server.fail_over()

        if begins:
            node.crash()
            node.boot()
        part()
        return promote

    def _leave_one_unaware(self, kept: Mapping[ShardKey, ShardRow]) -> None:
        """Keep a node unaware for a while that the row that makes it a home is about to be lost."""
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
        """End both lifelines on the server. The node notices, unless it can hear nothing now.

        The end of a session comes behind an answer that is still on its way. So a node that waits
        for the answers of both notices neither end before the first of them. A node whose main loop
        stands still for longer than the limit neither pings nor listens, until the next ping after
        its loop has gone on.
        """
        sessions = node.lifelines()
        if len(sessions) < 2:
            return None
        self._count(fault.kind)
        waits = all(each.awaited for each in sessions)
        for each in sessions:
            self.world.server.sessions.end(each)
        ping = LIFELINE.ping_interval_seconds
        until_the_next_ping = node.process.stood_still(ping * (1 + DRIFT)) + ping
        deaf = until_the_next_ping * (1 + DRIFT) >= LIFELINE.loop_stall_limit_seconds
        if waits or node.process.stopped or deaf or node.name in self.world.conditions.cut_off:
            self.world.overlaps.begins(sessions[0].client)
        else:
            self._on_the_way[node.process] = self.world.overlaps.of_now(sessions[0].client)
        return lambda: None

    def _lifelines_unheard(self, fault: Fault, node: VirtualNode) -> Undo | None:
        """End both lifelines towards the server only, so that the node notices neither.

        Often the node is apart from the other nodes too, with some of its callers, so that no
        message reaches it.
        """
        if len(node.lifelines()) < 2:
            return None
        self._count(fault.kind)
        node.lose_lifelines()
        return self._partition(fault, node) if self._random.random() < APART_TOO else lambda: None

    def _line_lost(self, fault: Fault, node: VirtualNode) -> Undo | None:
        """Lose one of a node's connections for a while; its lifelines and the others go on."""
        down = self.world.conditions_of[fault.journal].lines_down
        if node.name in down:
            return None
        self._count(fault.kind, fault.journal)
        lines = ("journal", "reads") if fault.journal else ("journal", "reads", "control")
        down[node.name] = self._random.choice(lines)
        self.world.trace.note(node.name, None, "its line %s is lost", down[node.name])
        return lambda: down.pop(node.name, None)

    def _slow_pings(self, fault: Fault, node: VirtualNode) -> Undo:
        """Delay the answers to one node's lifelines, and nothing else."""
        self._count(fault.kind)
        slow = self.world.conditions.slow_pings
        slow[node.name] = None
        return lambda: slow.pop(node.name, None)

    def _right_taken(self, fault: Fault, _: VirtualNode) -> Undo:
        """Take the role's right to end sessions now and then, while commits are late.

        So commits in doubt stay so, and nothing new opens.
        """
        world, server = self.world, self.world.servers[fault.journal]
        conditions = world.conditions_of[fault.journal]
        self._count(fault.kind, fault.journal)
        conditions.late_commits = LATE_TOO
        ends = world.now + fault.lasts

        def turn() -> None:
            server.ends_own = not server.ends_own
            if world.now + TURN_SECONDS < ends:
                world.scheduler.later(TURN_SECONDS, turn)

        def give_back() -> None:
            server.ends_own = True
            conditions.late_commits = 0.0

        turn()
        return give_back

    def _server_errors(self, fault: Fault, _: VirtualNode) -> Undo:
        """Let the server answer writes with errors of its own, one kind after the other."""
        world, conditions = self.world, self.world.conditions_of[fault.journal]
        self._count(fault.kind, fault.journal)
        left = self._random.sample(TROUBLES, len(TROUBLES))

        def next_one() -> None:
            trouble = conditions.trouble = left.pop()
            world.transition("server", "takes what is written", trouble.state)
            world.trace.note(
                "world",
                None,
                "the server%s answers %s",
                f" of {fault.journal}" * bool(fault.journal),
                trouble.state,
            )
            if left:
                world.scheduler.later(fault.lasts / len(TROUBLES), next_one)

        def end() -> None:
            left.clear()
            conditions.trouble = None

        next_one()
        return end

    def _closed_entities(self, fault: Fault, _: VirtualNode) -> Undo:
        """Let a user's trigger raise for the rows of two entities, at once or after long."""
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
        """Let a user's constraint refuse some rows: the same ones each time."""
        self._count(fault.kind)
        return self.world.obstacles.refuse(
            lambda row: b"token" in row.payload and not crc32(row.payload) % REFUSED
        )

    def _locked_shards(self, fault: Fault, _: VirtualNode) -> Undo | None:
        """Let an operator's session hold the rows of two shards."""
        server = self.world.servers[fault.journal]
        obstacles, keys = self.world.obstacles, sorted(server.cluster.epochs)
        if len(keys) < 2:
            return None
        self._count(fault.kind, fault.journal)
        locked = self._random.sample(keys, 2)
        for key in locked:
            self.world.trace.note("world", None, "the row of shard %d/%d is locked", *key)
            obstacles.lock(*key, server)

        def unlock() -> None:
            for key in locked:
                obstacles.unlock(*key, server)

        return unlock

    def _lease_taken(self, fault: Fault, _: VirtualNode) -> Undo | None:
        """Give a lease to another owner while its holder still believes in it."""
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
        self._count(fault.kind, fault.journal)
        cut = self.world.conditions_of[fault.journal].cut_off
        cut[node.name] = None
        return lambda: cut.pop(node.name, None)
