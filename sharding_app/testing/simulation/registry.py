"""The registry of live instances over all nodes.

It finds one that lives twice, or not though it should.

An instance is *alive* while its process runs, its node's lease is valid by the node's own clock and
has not lapsed since, and either a handler of it runs or its slot still holds the object. An
instance that was stopped by force is given up. The registry hears of each handler's begin and end
(`workload`) and of each shard that starts and stops (`Told`), and is asked after turns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from sharding_app.entities.base import Entity
from sharding_app.entities.entity_type import EntityType
from sharding_app.protocol.ids import Epoch, Incarnation, ShardId, ShardKey, Term
from sharding_app.protocol.journals import CLUSTERS_OWN
from sharding_app.protocol.records import Lineage
from sharding_app.protocol.shard import SlotState
from sharding_app.runtime.base.interfaces import NoListener
from sharding_app.runtime.journal.commits import Resident, ResidentShard
from sharding_app.testing.simulation.hosts import all_hosts, forced_of, home_of, shard_at, waits_in
from sharding_app.testing.simulation.loop import Process
from sharding_app.testing.simulation.memory_checker import MEMORY
from sharding_app.testing.simulation.promises import PromiseBroken

if TYPE_CHECKING:
    from sharding_app.adapters.memory.server import MemoryServer
    from sharding_app.runtime.node.node import Node
    from sharding_app.testing.simulation.workload import Ending
    from sharding_app.testing.simulation.world import World

OVERLAP_SECONDS = 3.0
"""A former coordinator notices within this time, awake, that there is another one."""


@dataclass(slots=True)
class Instance:
    """An object that has handled something."""

    name: str
    entity: Entity
    type: EntityType
    node: Incarnation
    shard: ResidentShard
    slot: Resident | None
    life: int
    "Generation of its slot when it began. If the slot's differs now, the object was dropped."
    generation: int
    "Generation of its node's lease when it last began to handle something."
    forced: int
    "Number of entities that its host had stopped by force when it last began to handle something."
    handling: int = 0
    ending: Ending | None = None

    def __str__(self) -> str:
        return f"{self.name} on {self.node} at epoch {self.shard.epoch}"


class Home(NamedTuple):
    """The home of an entity whose row is lost."""

    incarnation: Incarnation
    epoch: Epoch
    resting: Resident | None
    "The entity there, if it goes to rest."


class Registry:
    def __init__(self, world: World) -> None:
        self.world = world
        self.should_run: dict[tuple[EntityType, str], None] = {}
        "Remembered entities that have handled something, and have not gone to rest since."
        self.at_rest: dict[tuple[EntityType, str], None] = {}
        "Entities that the world has sent to rest, and seen there."
        self._instances: dict[str, Instance] = {}
        self._coordinators: dict[Term, Incarnation] = {}
        self._overlaps: dict[Incarnation, tuple[Process, float]] = {}
        """Former coordinators that go on, and how long their process had been awake when that was
        seen first.
        """
        self._to_store_again: dict[tuple[EntityType, str], Home] = {}
        """Remembered entities in memory that go on, and whose rows the server has lost: their home
        stores them again. One that goes to rest goes on if a message comes before it is there.
        """
        self._lost: dict[Lineage, set[tuple[str, str]]] = {}
        "Remembered entities (type, id) whose rows a lineage had at its end, of each that was lost."

    # -- Reports -----------------------------------------------------------------------------------

    def begins(self, entity: Entity, node: Node, made: EntityType, shard: ResidentShard) -> Instance:
        """Note that a handler begins. Raises if another instance of the entity is alive."""
        name = f"{made.name}/{entity.entity_id}"
        if made.settings.use_lease:
            self._has_its_lease(node, made, shard, name)
        former = self._instances.get(name)
        slot = shard.slots.get(entity.entity_id)
        if slot is not None and slot.pending:
            self._count("pipelined", "commit under way", "next command runs")
        generation, forced = _generation(node), forced_of(node, made.name)
        if former is not None and former.entity is entity:
            if former.ending == "terminated":
                raise PromiseBroken(2, "terminated_handles_no_more", f"{former} handles again", name)
            former.generation, former.forced = generation, forced
            former.handling += 1
            return former
        life = slot.generation if slot is not None else 0
        now = Instance(
            name, entity, made, node.incarnation, shard, slot, life, generation, forced, handling=1
        )
        if former is not None:
            if former.shard.epoch > shard.epoch and self.world.overlaps.excuses(node.incarnation):
                return now  # it cannot know of the instance that counts
            if self._is_alive(former):
                raise PromiseBroken(2, "one_live_instance", f"{now} beside {former}", name)
            if made.singleton_id is not None:
                self._follows(former, now)
            elif made.settings.remember_entities and former.node != now.node:
                self._count("remembered", "recalled", "elsewhere")
        self._instances[name] = now
        remembered = made.settings.remember_entities and self._counts(made, shard)
        if (made, entity.entity_id) in self._to_store_again:
            return now
        if remembered and not self._goes_by_a_lost_row(node, made, shard, entity.entity_id):
            self.should_run[made, entity.entity_id] = None
            self._is_stored(made, entity.entity_id)
        return now

    def ends(self, instance: Instance) -> None:
        instance.handling -= 1

    def stops(self, entity: Entity, how: Ending) -> None:
        """Note that the handler that runs ends its entity."""
        made = type(entity)._sharding_type
        instance = self._instances.get(f"{made.name}/{entity.entity_id}") if made is not None else None
        if made is None or instance is None or instance.entity is not entity:
            return
        instance.ending = how
        self._count("entity", "runs", how)
        if how == "rest":
            self.should_run.pop((made, entity.entity_id), None)
            lost = self._to_store_again.pop((made, entity.entity_id), None)
            if lost is not None and instance.slot is not None:
                self._to_store_again[made, entity.entity_id] = lost._replace(resting=instance.slot)

    def shard_started(self, me: Incarnation, made: EntityType, number: ShardId, epoch: Epoch) -> None:
        self.world.where.started((made.name, number), epoch)
        for node in self._live_nodes():
            shard = shard_at(node, made.name, number)
            if shard is not None and node.incarnation != me and not shard.stopped:
                if epoch < shard.epoch and self.world.overlaps.excuses(me):
                    continue  # it cannot know of the home that counts
                detail = f"{me} starts epoch {epoch}, {node.incarnation} has not stopped epoch {shard.epoch}"
                self.world.broke(PromiseBroken(2, "one_home", detail, f"{made.name}/{number}"))

    def shard_stopped(self, me: Incarnation, made: EntityType, number: ShardId, epoch: Epoch) -> None:
        """Check that a singleton got the termination message before its shard stopped."""
        if made.singleton_id is None:
            return
        instance = self._instances.get(f"{made.name}/{made.singleton_id}")
        node = self.world.node_of(me)
        if instance is None or node is None or instance.shard.epoch != epoch or instance.node != me:
            return
        if self._was_stopped_at_once(node, made, number):
            return
        if instance.ending is None and self._goes_on(instance, node) and not _was_reloaded(instance):
            detail = f"{instance} was stopped without its termination message"
            self.world.broke(PromiseBroken(0, "terminated_at_hand_over", detail, instance.name))

    def is_losing_its_tail(self, server: MemoryServer) -> None:
        """Keep which entities are remembered, just before a server goes back in time."""
        names = {number: name for name, number in self.world.server.cluster.type_ids.items()}
        self._lost[server.identity.lineage] = {
            (names[type_id], entity)
            for (type_id, _), entities in server.journal.remembered.items()
            for entity in entities
        }

    def went_back(self, *, of_the_cluster: bool) -> None:
        """Forget rows that a server has lost: their entities need not run.

        Of the cluster's own server: terms may come again. Leases that it forgot were taken away,
        from a node that may not know it yet.
        """
        self.should_run = {each: None for each in self.should_run if self.is_stored(*each)}
        self._to_store_again = dict(self._without_a_row())
        if of_the_cluster:
            self.world.beliefs.all_taken()
            self._coordinators.clear()

    # -- Questions ---------------------------------------------------------------------------------

    def look(self) -> None:
        """Check that nothing lives twice, and that remembered entities are not forgotten."""
        self._look_at_lost_rows()
        for made, entity in self.should_run:
            self._is_stored(made, entity)
        homes: dict[ShardKey, Incarnation] = {}
        for node in self._live_nodes():
            me = node.incarnation
            for host in all_hosts(node):
                name = host.type.name
                for number, shard in host.shards.items():
                    if shard.stopped:
                        continue
                    other = homes.setdefault((name, number), me)
                    if other != me:
                        detail = f"{other} and {me} both host it"
                        raise PromiseBroken(2, "one_home", detail, f"{name}/{number}")
        self._look_at_coordinators()

    def missing(self) -> list[str]:
        """Return remembered entities, singletons and workers that should run, and do not."""
        wanted = list(self.should_run)
        wanted += [
            (each, each.singleton_id) for each in self.world.cast.types if each.singleton_id is not None
        ]
        missing = [f"{made.name}/{entity}" for made, entity in wanted if not self._runs(made, entity)]
        self._look_at_lost_rows()
        missing += [f"{made.name}/{entity}, which has no row" for made, entity in self._to_store_again]
        return missing + self.world.witness.workers.missing()

    def running_at_rest(self) -> list[str]:
        """Return entities that run, or would run again, though they have gone to rest."""
        return [
            f"{made.name}/{entity}"
            for made, entity in self.at_rest
            if self._runs(made, entity) or self.is_stored(made, entity)
        ]

    def is_stored(self, made: EntityType, entity: str) -> bool:
        number = self.world.shard_of(made.name, entity)
        type_id, server = (
            self.world.server.cluster.type_ids[made.name],
            self.world.server_of(made.name, number),
        )
        # A further journal follows a step of a resize when a shard is taken there next.
        here = server.cluster.numbers_here.get(type_id)
        if here is not None:
            number = here.shard_of(entity)
        return entity in server.journal.remembered.get((type_id, number), ())

    # -- Inside ------------------------------------------------------------------------------------

    def _without_a_row(self) -> Iterator[tuple[tuple[EntityType, str], Home]]:
        """Return the remembered entities in memory that are somewhere, and their homes. So are
        those that wait for their next start.
        """
        for each in self.world.nodes:
            if not each.runs or each.node is None:
                continue
            for host in all_hosts(each.node):
                if host.type.kind != "memory" or not host.type.settings.remember_entities:
                    continue
                for shard in host.shards.values():
                    for entity, slot in shard.slots.items():
                        goes_on = not (shard.stopping or slot.ended)
                        if goes_on and not self.is_stored(host.type, entity):
                            home = Home(
                                each.node.incarnation, shard.epoch, slot if slot.passivating else None
                            )
                            yield (host.type, entity), home
                for number, entity in host.entity_life.restarting:
                    waits = host.shards.get(number)
                    if waits is not None and not waits.stopping and not self.is_stored(host.type, entity):
                        yield (host.type, entity), Home(each.node.incarnation, waits.epoch, None)

    def _look_at_lost_rows(self) -> None:
        """Expect entities to run whose lost rows are there again. Disregard those that are gone."""
        for (made, entity), (home, epoch, resting) in list(self._to_store_again.items()):
            if self.is_stored(made, entity):
                if self.world.server_of_entity(made.name, entity).standby.waited_for:
                    continue  # it is visible, and a failover may lose it
                self.should_run[made, entity] = None
                self._count(MEMORY, "row is lost", "stored again")
            else:
                node = self.world.node_of(home)
                shard = None
                if node is not None and node.state != "ended":
                    shard = home_of(node, made.name, entity) or waits_in(node, made.name, entity)
                is_there = resting is None or (
                    shard is not None and shard.slots.get(entity) is resting and not resting.ended
                )
                if shard is not None and shard.epoch == epoch and not shard.stopping and is_there:
                    continue
            del self._to_store_again[made, entity]

    def _runs(self, made: EntityType, entity: str) -> bool:
        row = self.world.server.cluster.shards.get((made.name, self.world.shard_of(made.name, entity)))
        node = self.world.node_of(row.home) if row is not None and row.home is not None else None
        shard = shard_at(node, made.name, row.shard) if node is not None and row is not None else None
        slot = shard.slots.get(entity) if shard is not None else None
        return slot is not None and slot.state is not SlotState.LOADING and not slot.ended

    def _counts(self, made: EntityType, shard: ResidentShard) -> bool:
        """Whether the shard is still at this epoch."""
        cluster = self.world.server.cluster
        return cluster.epochs.get((cluster.type_ids[made.name], shard.number)) == shard.epoch

    def _goes_by_a_lost_row(self, node: Node, made: EntityType, shard: ResidentShard, entity: str) -> bool:
        """Whether the server has lost the entity's row, and its home has no news of the promotion.

        The row was there at the end of the lineage in which the home lives, so its start was
        stored. The home looks at a further journal now and then.
        """
        where, key = self.world.where, (made.name, shard.number)
        if where.is_in(key) == CLUSTERS_OWN:
            lineage, heard = node.lifeline.lease.lineage, self.world.has_heard(node)
        else:
            lineage, heard = where.lineage_of(key, shard.epoch), where.is_current(*key, shard.epoch)
        if lineage is None or heard or self.is_stored(made, entity):
            return False
        return (made.name, entity) in self._lost.get(lineage, ())

    def _is_stored(self, made: EntityType, entity: str) -> None:
        if not self.is_stored(made, entity):
            raise PromiseBroken(
                0,
                "what_runs_is_remembered",
                "it has handled something, and has no row",
                f"{made.name}/{entity}",
            )

    def _lease(self, made: EntityType, number: ShardId) -> str:
        one = made.singleton_id
        return f"{self.world.server.cluster_id}-" + (
            f"singleton-{one}" if one is not None else f"shard-{made.name}-{number}"
        )

    def _was_stopped_at_once(self, node: Node, made: EntityType, number: ShardId) -> bool:
        """Whether the shard had lost its lease, so that no termination handler may run either."""
        path = made.settings.use_lease
        return path is not None and not node.hosting.keepers[path].holds(self._lease(made, number))

    def _has_its_lease(self, node: Node, made: EntityType, shard: ResidentShard, name: str) -> None:
        """Check that the node has the shard's lease, or cannot know yet that it was taken away."""
        me, lease, beliefs = node.incarnation, self._lease(made, shard.number), self.world.beliefs
        if not beliefs.believes(me, lease, node.ports.clock.now()):
            detail = f"{me} handles, and was told that its lease is gone, or its time is over"
            raise PromiseBroken(0, "runs_with_its_lease", detail, name)
        row = self.world.server.leases.get(lease)
        has_it = row is not None and row.owner == me and self.world.server.lasts(row)
        if not has_it and not beliefs.was_taken(me, lease):
            detail = f"{me} handles, the lease is {row.owner if row is not None else None}'s"
            raise PromiseBroken(0, "runs_with_its_lease", detail, name)

    def _is_alive(self, instance: Instance) -> bool:
        node = self.world.node_of(instance.node)
        if node is None or not self._goes_on(instance, node):
            return False
        if instance.handling:
            return True
        slot = instance.shard.slots.get(instance.entity.entity_id)
        return not instance.shard.stopped and slot is not None and slot.entity is instance.entity

    def _goes_on(self, instance: Instance, node: Node) -> bool:
        """Whether its node has neither lost its lease since, nor given the instance up by force."""
        return (
            node.state != "ended"
            and self.world.is_valid(node)
            and not self.world.overlaps.excuses(node.incarnation)
            and _generation(node) == instance.generation
            and not self._was_forced(instance, node)
        )

    def _was_forced(self, instance: Instance, node: Node) -> bool:
        """Whether the instance was given up by force: some were, and it is in its place no more."""
        if forced_of(node, instance.type.name) == instance.forced:
            return False
        slot = instance.slot
        return slot is None or slot.is_gone or slot.generation != instance.life

    def _follows(self, former: Instance, now: Instance) -> None:
        if former.node == now.node and former.shard is now.shard:
            self._count("singleton", "runs", "started again")
        else:
            self._count("singleton", "runs", "handed over" if former.ending == "terminated" else "taken over")

    def _live_nodes(self) -> Iterator[Node]:
        """Return the nodes beside which no other instance may live."""
        for each in self.world.nodes:
            node = each.node
            if (
                each.runs
                and node is not None
                and node.state in ("up", "leaving")
                and self.world.is_valid(node)
                and not self.world.overlaps.excuses(node.incarnation)
            ):
                yield node

    def _look_at_coordinators(self) -> None:
        term = self.world.server.cluster.coordinator.term
        former: dict[Incarnation, Process] = {}
        for each in self.world.nodes:
            node = each.node
            if not each.runs or node is None or node.coordinator is None or not self.world.is_valid(node):
                continue
            its_term = node.coordinator.machine.term
            other = self._coordinators.setdefault(its_term, node.incarnation)
            if other != node.incarnation:
                raise PromiseBroken(
                    7, "one_coordinator_counts", f"{other} and {node.incarnation} in term {its_term}"
                )
            if its_term < term:
                former[node.incarnation] = each.process
        self._overlaps = {who: seen for who, seen in self._overlaps.items() if who in former}
        for who, process in former.items():
            _, awake = self._overlaps.setdefault(who, (process, process.awake))
            if process.awake - awake > OVERLAP_SECONDS:
                raise PromiseBroken(7, "one_coordinator_counts", f"{who} goes on, the term is {term}")

    def _count(self, machine: str, before: str, after: str) -> None:
        self.world.transition(machine, before, after)


class Told(NoListener):
    """The listener of a virtual node."""

    def __init__(self, registry: Registry, me: Incarnation) -> None:
        self._registry = registry
        self._me = me

    def shard_started(self, entity_type: EntityType, shard: ShardId, epoch: Epoch) -> None:
        self._registry.shard_started(self._me, entity_type, shard, epoch)

    def shard_stopped(self, entity_type: EntityType, shard: ShardId, epoch: Epoch) -> None:
        self._registry.shard_stopped(self._me, entity_type, shard, epoch)


def _generation(node: Node) -> int:
    return node.lifeline.lease.generation


def _was_reloaded(instance: Instance) -> bool:
    """Whether a handler of it has failed since, so that its object was dropped."""
    return instance.slot is None or instance.slot.generation != instance.life
