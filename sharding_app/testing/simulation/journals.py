"""Further journals of a world: databases of their own, in a quarter of the seeds.

Each has a server of its own with rows, locks, sessions and a standby, and faults of its own. The
coordinator spreads new shards over all of them. Processes are the same for all: one that is paused,
or answers slowly, is so towards each server.

The judge reads the commits of all servers. Of a further journal it knows which home has taken each
shard, from the rows. It checks in the moment of a commit that

* the events of a shard lie in one journal,
* a shard that moves to another one has all of its rows there, and nothing of it can take effect in
  the former one (`moves`),
* the epochs at which a shard is taken there do not fall,
* nothing is written in a journal that a shard has left, also where the cluster's server has lost
  that (`phases/lost_switch.py`),
* an event is written by the home that had taken the shard, at that epoch, on the server's present
  timeline. After a promotion each shard has to be taken anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from sharding_app.adapters.memory.move_rows import MoveRow
from sharding_app.adapters.memory.server import MemoryServer
from sharding_app.ports.journal import EventRow
from sharding_app.protocol.ids import Epoch, Incarnation, ShardId, ShardKey
from sharding_app.protocol.journals import CLUSTERS_OWN
from sharding_app.protocol.moving import Wanted
from sharding_app.protocol.records import Lineage, ShardRow
from sharding_app.testing.simulation.move_seeds import has_moves
from sharding_app.testing.simulation.promises import PromiseBroken

if TYPE_CHECKING:
    from sharding_app.testing.simulation.world import World

SEEDS = (11, 16, 23, 24, 28, 29, 30, 33, 34, 36, 37, 40, 42, 45, 46)
"""Of 48 seeds those with further journals: of both kinds, with workers, followers and archives, two
with projections. `resizes` says which of them are resized too."""
NAMES = ("second", "third")


def journals_of(seed: int) -> tuple[str, ...]:
    """Return the names of a seed's further journals: none, one, or at times two."""
    if seed % 48 not in SEEDS:
        return ()
    return NAMES if seed % 3 == 0 else NAMES[:1]


def weights_of(journals: tuple[str, ...]) -> Mapping[str, float]:
    """Return the weights by which new shards are spread: the further journals have most of them."""
    return {CLUSTERS_OWN: 1.0, **dict.fromkeys(journals, 1.5)} if journals else {}


class Take(NamedTuple):
    """The home that has taken a shard in a further journal, as its row says."""

    epoch: Epoch
    home: Incarnation


class JournalChecker:
    """The judge of where rows lie, and of who may write there."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._lie: dict[ShardKey, str] = {}
        "The journal of each shard, as the first decision or the first event has said."
        self._takes: dict[tuple[str, int, ShardId], Take] = {}
        self._started: dict[tuple[str, ShardId, Epoch], Lineage] = {}
        "By shard and epoch: the lineage of its journal when its home began it."
        self._moved: dict[ShardKey, None] = {}
        self._lost: dict[ShardKey, None] = {}
        "Shards of which the cluster's server has lost that they lie in another journal."
        self._fenced: dict[ShardKey, Lineage] = {}
        "The lineage of the former journal when a move has fenced the shard there."
        self._had: dict[ShardKey, dict[str, dict[Any, Any]]] = {}
        "What it had of the shard then."
        world.server.cluster.on_switch = self._moves
        for name, server in world.journals.items():
            server.cluster.on_take = lambda *taken, name=name: self._is_taken(name, *taken)

    def is_in(self, key: ShardKey) -> str:
        """Return the name of the journal in which a shard lies, as far as it is known."""
        known = self._lie.get(key)  # a shard that a resize has just made has a row, and no home yet
        return self._world.server.cluster.journals.get(key, CLUSTERS_OWN) if known is None else known

    def has_moved(self, key: ShardKey) -> bool:
        return key in self._moved

    def lies_in(self, name: str, type_name: str, shard: ShardId) -> bool:
        """Whether the rows of a shard in a journal are no copy that a move has made or left."""
        return not has_moves(self._world.seed) or self.is_in((type_name, shard)) == name

    def fenced(self, keys: Iterable[ShardKey], name: str) -> None:
        """Note that a move has fenced shards in the journal that they leave."""
        server = self._world.servers[name]
        for key in keys:
            self._fenced[key] = server.identity.lineage
            self._had[key] = _rows_of(self._world, server, key)

    def _moves(self, key: ShardKey, move: MoveRow) -> None:
        """Check a shard in the moment in which it moves to another journal."""
        world = self._world
        source, target = world.servers[move.source], world.servers[move.target]
        world.trace.note("world", None, "%s/%d lies in %r from now on", *key, move.target)
        world.transition("journal", "taken", "moved")
        self._lie[key] = move.target
        self._moved[key] = None
        about = f"{key[0]}/{key[1]}"
        if self._fenced.get(key) != source.identity.lineage:
            world.witness.moved_behind_a_failover(key, move.target)
            return
        here, there = _rows_of(world, source, key), _rows_of(world, target, key)
        # A mark in the new journal says of a message that it has taken effect: it does not come.
        marks = target.messages.marks
        here["messages"] = {
            message: row
            for message, row in here["messages"].items()
            if message not in marks or marks[message].partial
        }
        for what in ("events", "snapshots"):
            there[what] = _not_trimmed(there[what], here[what], self._had[key][what])
        for what, rows in here.items():
            if rows != there[what]:
                detail = f"{what} in {move.source!r}: {_short(rows, there[what])}, and in {move.target!r}: {_short(there[what], rows)}"
                world.broke(PromiseBroken(3, "moves_lose_nothing", detail, about))
        type_id = world.server.cluster.type_ids[key[0]]
        if move.source and (left := source.messages.of_shards(type_id, [key[1]])):
            detail = f"{left[0].row.id} still waits in {move.source!r}"
            world.broke(PromiseBroken(15, "moved_shards_leave_no_messages", detail, about))

    def decided(self, key: ShardKey) -> None:
        """Check that a shard whose row was lost and is made anew lies where it did."""
        if self._world.journals and key not in self._lost:
            self._lies(key, self._world.server.cluster.journals.get(key, CLUSTERS_OWN))

    def cluster_went_back(self) -> None:
        """Note of which shards the cluster's server has lost a switch. They lie in their new
        journals, and nothing is written in the former ones.

        A shard that lay in that server itself, and whose row is lost, has lost all that it had. It
        may get its next home anywhere.
        """
        cluster = self._world.server.cluster
        journals = cluster.journals
        for key in [each for each, name in self._lie.items() if name == CLUSTERS_OWN]:
            if key not in cluster.shards:
                del self._lie[key]
        self._lost |= {key: None for key, name in self._lie.items() if journals.get(key, name) != name}

    def has_lost(self, key: ShardKey) -> bool:
        return key in self._lost

    def put_right(self, key: ShardKey) -> None:
        """Let an operator say where a shard lies whose switch was lost, as docs/journals.md has
        it.
        """
        cluster = self._world.server.cluster
        cluster.journals[key] = self._lie[key]
        cluster.moves[key] = cluster.moves[key]._replace(step="moved", closed_until=None)
        del self._lost[key]

    def have_left(self, wanted: Wanted) -> None:
        """Let an operator say that shards have left the journal to which they are to move, as
        docs/journals.md has it. It has lost that they had, with a failover.
        """
        rows = self._world.servers[wanted.target].cluster.shards
        for key in [(wanted.type, shard) for shard in wanted.shards]:
            row = rows.get(key)
            if (
                wanted.target
                and row is not None
                and row.home is not None
                and self.is_in(key) == wanted.source
            ):
                rows[key] = ShardRow(row.type, row.shard, row.epoch, None, "stopped")

    def committed(self, name: str, type_name: str, row: EventRow, writer: Incarnation) -> None:
        """Check promise 1 at a commit in a further journal."""
        key = type_name, row.shard
        self._lies(key, name)
        if name == CLUSTERS_OWN:
            return
        take = self._takes.get((name, row.type_id, row.shard))
        about = f"{type_name}/{row.entity}"
        if take != Take(row.epoch, writer):
            detail = f"{writer} wrote at epoch {row.epoch} in {name}, which was taken as {take}"
            raise PromiseBroken(1, "written_by_who_has_taken_it", detail, about)
        if not self.is_current(type_name, row.shard, row.epoch):
            detail = f"{writer} wrote at epoch {row.epoch} in {name}, and started it before that was promoted"
            raise PromiseBroken(1, "begins_anew_after_a_promotion", detail, about)
        self._world.transition("journal", "taken", "written")

    def started(self, key: ShardKey, epoch: Epoch) -> None:
        """Note that a shard begins at its home. Nothing was read before."""
        if (name := self.is_in(key)) != CLUSTERS_OWN:
            self._started[*key, epoch] = self._world.servers[name].identity.lineage

    def lineage_of(self, key: ShardKey, epoch: Epoch) -> Lineage | None:
        """Return the lineage of its further journal in which a shard began at its home."""
        return self._started.get((*key, epoch))

    def is_current(self, type_name: str, shard: ShardId, epoch: Epoch) -> bool:
        """Whether the objects of a shard, at that epoch, were read on the present timeline of its
        journal. So they lack nothing, and have nothing that the server has lost.
        """
        name = self.is_in((type_name, shard))
        if name == CLUSTERS_OWN:
            return True
        return self.lineage_of((type_name, shard), epoch) == self._world.servers[name].identity.lineage

    def _lies(self, key: ShardKey, name: str) -> None:
        known = self._lie.setdefault(key, name)
        if known != name:
            detail = f"its rows lie in {known or 'the journal of the cluster'}, and now in {name or 'that'}"
            raise PromiseBroken(1, "a_shard_lies_in_one_journal", detail, f"{key[0]}/{key[1]}")

    def _is_taken(
        self, name: str, type_name: str, type_id: int, shard: ShardId, epoch: Epoch, home: Incarnation
    ) -> None:
        """Check that the epoch does not fall, and is that of a decision."""
        world, key = self._world, (name, type_id, shard)
        before = self._takes.get(key)
        about = f"{type_name}/{shard}"
        world.trace.note(home, None, "takes %s in %s at epoch %d", about, name, epoch)
        world.transition("journal", "decided" if before is None else "taken", "taken")
        self._takes[key] = Take(epoch, home)
        if before is not None and (epoch < before.epoch or (epoch == before.epoch and home != before.home)):
            detail = f"{home} takes it at epoch {epoch} in {name}, after {before}"
            world.broke(PromiseBroken(1, "taken_epochs_rise", detail, about))
        if world.witness.homes.get((type_name, shard, epoch)) != home:
            detail = f"{home} takes it at epoch {epoch} in {name}, and was never its home"
            world.broke(PromiseBroken(7, "hosts_what_the_row_says", detail, about))

    def went_back(self, name: str, server: MemoryServer) -> None:
        """Take the rows of a promoted standby for the takes: it may lack the last ones."""
        numbers, rows = server.cluster.type_ids, server.cluster.shards.values()
        for key in [each for each in self._takes if each[0] == name]:
            del self._takes[key]
        for row in rows:
            self._takes[name, numbers[row.type], row.shard] = Take(row.epoch, str(row.home))


def _rows_of(world: World, server: MemoryServer, key: ShardKey) -> dict[str, dict[Any, Any]]:
    """Return what a server has of a shard that moves, without its epochs: here rows, there a copy.
    Messages that the move has taken out are meant, and not those from outside.
    """
    type_name, shard = key
    type_id, rows = world.server.cluster.type_ids[type_name], server.journal
    events = {
        (entity, seq): (each.row._replace(epoch=0, shard=0), each.at)
        for (number, entity), stored in rows.events.items()
        if number == type_id and world.shard_of(type_name, entity) == shard
        for seq, each in stored.items()
    }
    snapshots = {
        (entity, seq): each.state
        for (number, entity), stored in rows.snapshots.items()
        if number == type_id and world.shard_of(type_name, entity) == shard
        for seq, each in stored.items()
    }
    out = [each for each in server.messages.stash.values() if each.row.type_id == type_id]
    messages = [each for each in out if each.row.shard == shard]
    messages += server.messages.of_shards(type_id, [shard])
    return {
        "events": events,
        "snapshots": snapshots,
        "remembered entities": dict(rows.remembered.get((type_id, shard), {})),
        "messages": {each.row.id: each.row._replace(epoch=0) for each in messages},
    }


def _not_trimmed(copied: dict[Any, Any], rows: dict[Any, Any], had: dict[Any, Any]) -> dict[Any, Any]:
    """Return the copied rows without those that went behind the fence, and that were older than all
    that are left of their entity.

    The former home trims an entity without a look at the fence, as nothing needs such rows. It may
    do so behind the last comparison. `had`: the rows at the fence.
    """
    oldest: dict[Any, int] = {}
    for entity, seq in rows:
        oldest[entity] = min(seq, oldest.get(entity, seq))
    return {
        (of, seq): row
        for (of, seq), row in copied.items()
        if (of, seq) not in had or seq >= oldest.get(of, 0)
    }


def _short(rows: dict[Any, Any], others: dict[Any, Any]) -> str:
    differing = sorted(str(each) for each in rows if rows[each] != others.get(each))
    return f"{len(rows)} ({', '.join(differing[:3])})"
