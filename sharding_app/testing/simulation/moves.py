"""An operator who moves shards between journals, with their rows, in some seeds.

The course is that of the real command (`protocol.moving`), carried out on the virtual servers by a
process of its own. It dies at any step, before or after a request takes effect, or loses a server.
Its sessions may outlive it, with a request that executes late. The next one goes on, or takes the
move back. Copies that shards have left behind are deleted now and then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from sharding_app.adapters.memory.moving import LeftCopies, MemoryMover
from sharding_app.adapters.memory.sessions import ConnectionLost, MayNotEnd, ServerError
from sharding_app.entities.entity_type import EntityType
from sharding_app.protocol import moving as course
from sharding_app.protocol.ids import ShardId
from sharding_app.protocol.journals import CLUSTERS_OWN
from sharding_app.protocol.moving import Answer, CannotMove, Limits, Move, Step, Wanted
from sharding_app.testing.simulation.move_seeds import has_moves
from sharding_app.testing.simulation.promises import PromiseBroken
from sharding_app.testing.simulation.workload import TILL

if TYPE_CHECKING:
    from sharding_app.testing.simulation.world import World

MOVES = 26
PAUSE_SECONDS = 1.0
TAKEN_BACK = 0.15
"""This share of the moves that were stopped is taken back."""
LIMITS = Limits(homes=5.0, projections=3.0, closed=1.5, look=0.1)
LINGERS_SECONDS = 1.0
"""The sessions of half of the movers that die live on for up to this time."""
FAILURES = (CannotMove, ConnectionLost, MayNotEnd, ServerError)
MOVE = "move of rows"
DEATHS = (
    course.Begin, course.Prepare, course.Watch, course.ClearCopy, course.Copy, course.Apply, course.Compare,
    course.Close, course.Homes, course.Fence, course.Stand, course.PutRest, course.Stash, course.Switch,
    course.Leave, course.Unwatch,
)  # fmt: skip
"""Requests at which a mover dies: one of these, in half of the calls."""
TRANSITIONS = (
    *((MOVE, each.__name__, "has died") for each in DEATHS),
    *((MOVE, "goes on", how) for how in ("done", "taken back", "CannotMove", "ConnectionLost")),
    (MOVE, "left behind", "deleted"),
    (MOVE, "done", "in calm"),
    (MOVE, "lost", "left alone"),
    (MOVE, "lost", "put right"),
)


class _Dies(Exception):
    """The process of the command ends here."""


async def move_rows_now_and_then(world: World) -> None:
    random = Random(f"moves {world.seed}")
    for number in range(MOVES):
        await asyncio.sleep(random.random() * PAUSE_SECONDS)
        await Mover(world, number, random).run()


async def erase_copies(world: World, type_name: str, entity: str) -> None:
    """Delete an entity in the copies that its shard has left behind, as an erasure does in the end.
    Goes on until it has, and checks that none of them has what it had been before.
    """
    if not has_moves(world.seed):
        return
    erased_at = world.witness.erased_when(f"{type_name}/{entity}")
    while True:
        try:
            await LeftCopies(world.servers, type_name, "eraser").erase(entity)
        except FAILURES:
            await asyncio.sleep(PAUSE_SECONDS)
        else:
            break
    cluster = world.server.cluster
    move = cluster.moves.get((type_name, world.shard_of(type_name, entity)))
    if move is not None and move.step == "moved":
        rows = world.servers[move.source].journal.events.get((cluster.type_ids[type_name], entity), {})
        if former := [seq for seq, each in rows.items() if each.at < erased_at]:
            detail = f"{len(former)} events of before its erasure are left in {move.source!r}"
            world.broke(PromiseBroken(4, "erasures_reach_copies", detail, f"{type_name}/{entity}"))


class Mover:
    """One call of the command."""

    def __init__(self, world: World, number: int, random: Random, dies: bool = True) -> None:
        self._world = world
        self._random = random
        self._client = f"mover-{number}"
        self._dies_at: type | None = random.choice(DEATHS) if dies and random.random() < 0.5 else None
        self._dies_after = random.random() < 0.5
        "Once the request has taken effect."
        self._requests_left = random.choice((1, 1, 2))
        "Requests of that kind up to its death."

    async def run(self) -> None:
        """Move some shards, or go on with a former call."""
        wanted, takes_back = self._choose()
        if wanted is None:
            return
        await self.move(wanted, takes_back=takes_back)

    async def move(self, wanted: Wanted, *, takes_back: bool = False, at_once: int = 2) -> bool:
        """Return whether it has come to its end."""
        world = self._world
        mover = MemoryMover(world.servers, wanted, self._client)
        world.trace.note(self._client, None, "%s %s", "takes back" if takes_back else "moves", wanted)
        try:
            await mover.open()
            made = Move(wanted, LIMITS)
            await self._carry_out(wanted, mover, made.take_back() if takes_back else made.run(at_once))
        except FAILURES as error:
            world.trace.note(self._client, None, "a move has to end: %s", error)
            world.transition(MOVE, "goes on", type(error).__name__)
        except _Dies:
            world.transition(MOVE, self._dies_at.__name__ if self._dies_at else "", "has died")
            self._is_gone()
            return False
        else:
            world.transition(MOVE, "goes on", "taken back" if takes_back else "done")
            mover.close()
            return True
        mover.close()
        return False

    async def _carry_out(self, wanted: Wanted, mover: MemoryMover, steps: course.Course) -> None:
        world = self._world
        request = next(steps)
        while True:
            value: Any = None
            if isinstance(request, Step):
                if request.shards:
                    world.trace.note(self._client, None, "%s %s", request.name, request.shards)
            else:
                self._may_die(request, after=False)
                try:
                    self._guard(request, mover)
                    value = await self._do(request, mover)
                except FAILURES as error:
                    request = steps.throw(error)
                    continue
                if isinstance(request, course.Fence):
                    world.where.fenced([(wanted.type, each) for each in value], wanted.source)
                self._may_die(request, after=True)
            try:
                request = steps.send(Answer(world.now, value))
            except StopIteration:
                return

    async def _do(self, request: course.Request, mover: MemoryMover) -> Any:
        """Carry a request out. The scene knows of a switch meanwhile."""
        if not isinstance(request, course.Switch):
            return await mover.do(request)
        self._world.switches += 1
        try:
            return await mover.do(request)
        finally:
            self._world.switches -= 1

    def _guard(self, request: course.Request, mover: MemoryMover) -> None:
        """Switch nothing while a server that has the copy, or the switch, has a standby that lacks
        it and may take over: what is lost then is more than a tail. None is cut off while a switch
        is under way.
        """
        if isinstance(request, course.Switch) and any(
            each.standby.away and each.standby.asynchronous for each in mover.new_places
        ):
            raise CannotMove("a standby is behind")

    def _may_die(self, request: course.Request, *, after: bool) -> None:
        if type(request) is self._dies_at and after is self._dies_after:
            self._requests_left -= 1
            if not self._requests_left:
                self._world.trace.note(self._client, None, "dies at %s", request)
                raise _Dies

    def _is_gone(self) -> None:
        """End its sessions: at once, or once the servers notice."""
        lingers = self._random.random() < 0.5
        seconds = self._random.random() * LINGERS_SECONDS if lingers else 0.0

        def notice() -> None:
            for each in self._world.servers.values():
                each.client_died(self._client)

        self._world.scheduler.later(seconds, notice)

    def _choose(self) -> tuple[Wanted | None, bool]:
        """Choose shards to move, and whether a move is taken back instead."""
        cluster, random = self._world.server.cluster, self._random
        cast = self._world.cast
        # Those with durable messages more often than others.
        chosen = (*cast.types, *({made: None for made, _ in cast.senders}))
        made = random.choice([each for each in chosen if can_move(each)])
        drawn = random.random(), random.random(), random.choice(sorted(self._world.servers))
        if made.name not in cluster.type_ids:
            return None, False
        if (known := under_way(self._world, made.name)) is not None:
            return known, drawn[0] < TAKEN_BACK
        lying: dict[str, list[ShardId]] = {}
        for (name, shard), journal in sorted(cluster.journals.items()):
            if name == made.name and journal != drawn[2] and (name, shard) not in cluster.moves:
                lying.setdefault(journal, []).append(shard)
        if not lying:
            return None, False
        source = sorted(lying)[int(drawn[1] * len(lying))]
        number = min(len(lying[source]), random.randint(1, 4))
        return Wanted(made.name, source, drawn[2], random.sample(lying[source], number)), False


class LosingMover(Mover):
    """A call whose switch DATABASE loses: its standby is cut off in the moment before, and confirms
    nothing that is waited for.
    """

    def _guard(self, request: course.Request, mover: MemoryMover) -> None:
        if isinstance(request, course.Switch):
            self._world.server.standby.part(asynchronous=True)


async def delete_copies_now_and_then(world: World) -> None:
    """End moves that were stopped behind their switch, and delete what shards have left behind."""
    random = Random(f"copies {world.seed}")
    for number in range(MOVES):
        await asyncio.sleep(random.random() * 2 * PAUSE_SECONDS)
        await clean_up(world, f"cleaner-{number}", random.choice(movable(world)))


async def clean_up(world: World, client: str, type_name: str) -> bool:
    """Return whether nothing of former moves of a type is left."""
    cluster = world.server.cluster
    if not left_behind(world, type_name):
        return True
    try:
        for source in left_behind(world, type_name):
            shards = [
                shard for (name, shard), move in sorted(cluster.moves.items())
                if name == type_name and (move.step, move.source) == ("moved", source)
            ]  # fmt: skip
            if not source:
                continue  # its rest went in the transaction of the switch
            mover = MemoryMover(world.servers, Wanted(type_name, source, CLUSTERS_OWN, shards), client)
            try:
                await mover.open()
                await mover.leave()
            finally:
                mover.close()
        await LeftCopies(world.servers, type_name, client).delete()
    except FAILURES as error:
        world.trace.note(client, None, "copies of %s are left: %s", type_name, error)
        return False
    world.transition(MOVE, "left behind", "deleted")
    return not left_behind(world, type_name)


def under_way(world: World, type_name: str) -> Wanted | None:
    """Return what the next call of the command goes on with."""
    found: dict[tuple[str, str], list[ShardId]] = {}
    for (name, shard), move in sorted(world.server.cluster.moves.items()):
        if name == type_name and move.step != "moved":
            found.setdefault((move.source, move.target), []).append(shard)
    return next((Wanted(type_name, *places, shards) for places, shards in found.items()), None)


def left_behind(world: World, type_name: str) -> list[str]:
    """Return the journals in which shards of a type have left copies."""
    found = {
        move.source for (name, _), move in world.server.cluster.moves.items()
        if name == type_name and move.step == "moved"
    }  # fmt: skip
    return sorted(found)


def movable(world: World) -> Sequence[str]:
    known = world.server.cluster.type_ids
    return [each.name for each in world.cast.types if can_move(each) and each.name in known]


def can_move(made: EntityType) -> bool:
    """Whether shards of a type move here. Those of tills have to lie beside the application's rows,
    and an extractor of a type's own says nothing of ids alone.
    """
    return made is not TILL and made.extractor is None and not made.workers
