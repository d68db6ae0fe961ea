"""The part of a node that works with one journal database: its writer, its deliveries, and a host
for each type.

Contract: parts share no queue, so a journal that is down, slow or full stops its own shards only.
The node's first part has the journal in the cluster's own database, and is the only one where
`JOURNALS` names no other.

All parts share the links of the node, and with them the credit of each calling process. A healthy
journal that is slow slows its callers down by it. The calls that wait for one that *stands still*
take half of it at most, and later ones are refused: calls to other journals go on.

A further journal is looked at all the time. Nothing of it is used before it has said that it
belongs to this cluster, and is the database that the cluster knows by that name. When its server
goes on in another lineage, after a failover or a restore, its last events may be missing there: the
part gives up its shards, and they are read again at new epochs. Objects in memory stay. Their
shards are taken again before anything is stored there. The node's row says which journals it uses.
So a node that cannot use one learns whether others can (`runtime.node.reach`).
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping

from sharding_app.ports.journal import Journal, JournalOfAnother, JournalUnavailable, Owned
from sharding_app.ports.store import ClusterStore, StoreUnavailable
from sharding_app.protocol.ids import Epoch, Incarnation, ShardId
from sharding_app.protocol.numbering import Numbering
from sharding_app.protocol.records import Lineage
from sharding_app.runtime.base.shared_round import Rounds
from sharding_app.runtime.delivery.deliverer import Deliverer
from sharding_app.runtime.hosting.following import Following
from sharding_app.runtime.hosting.marks import Marks
from sharding_app.runtime.hosting.parked import Backlog
from sharding_app.runtime.hosting.type_host import TypeHost
from sharding_app.runtime.journal.loader import Permits
from sharding_app.runtime.journal.writer import JournalWriter

logger = logging.getLogger("sharding.journal")

LOOK_SECONDS = 0.5
STILL_SECONDS = 0.5
"""A journal that has answered no look, or ended no commit, for this time stands still."""
REFUSED_SECONDS = 5.0


class JournalPart:
    def __init__(
        self,
        name: str,
        journal: Journal,
        writer: JournalWriter,
        recoveries: Permits,
        deliverer: Deliverer,
        following: Following,
        secured: Rounds,
    ) -> None:
        """`name`: "" for the journal in the cluster's own database, else the alias of its own."""
        self.name = name
        self.journal = journal
        self.writer = writer
        self.recoveries = recoveries
        self.deliverer = deliverer
        self.following = following
        self.secured = secured
        self.clusters: JournalPart | None = None
        "The part with the cluster's own journal, if it is another one."
        self.others: Callable[[str], Journal] | None = None
        """Returns another journal by its name, if there are others. Raises JournalUnavailable where
        it is not used."""
        self.marks: Marks | None = None
        "Of messages from other journals, if there are others."
        self.hosts: dict[str, TypeHost] = {}
        "By the names of their types."
        self.backlog = Backlog()
        "Envelopes that wait with these."
        self.has_room: Callable[[Incarnation], bool] = lambda _: True
        "Tells whether more calls of a process may wait for journals that stand still."
        self.is_silent = False
        "A look has had no answer for `STILL_SECONDS`."
        self.trouble = "" if not name else "it has not answered yet"
        "Why nothing of this journal is used now; empty: it is used."
        self._left: dict[tuple[str, ShardId], Epoch] = {}
        "Shards that have left it, and the epochs at which it has said so last."

    def stands_still(self) -> bool:
        """Tell whether nothing is known to come out of the journal now, if there are others."""
        if self.others is None:
            return False
        return bool(self.trouble) or self.is_silent or self.writer.stands_for > STILL_SECONDS

    async def take(
        self,
        type_name: str,
        type_id: int,
        me: Incarnation,
        shards: Mapping[ShardId, Epoch],
        numbers: Numbering | None,
    ) -> tuple[frozenset[ShardId], bool | None]:
        """Make shards ours in this journal, and safe to be read (`Journal.secure`). Return those
        that are, and whether their type has messages there (None: the shard's row says so). Raises
        JournalUnavailable.

        The cluster's row says that they lie here, and is visible before a synchronous standby of
        DATABASE has it. A failover of DATABASE may lose that row, and the shard would go on
        elsewhere without the events that its home has stored here. So DATABASE is secured first.
        """
        if not self.name:
            await self.secured.next()
            return frozenset(shards), None
        if self.trouble:
            raise JournalUnavailable(f"the journal {self.name!r} is not used: {self.trouble}")
        if self.clusters is not None:
            await self.clusters.secured.next()
        taken = await self.journal.take(type_name, type_id, numbers or Numbering(1), shards, me)
        for shard, epoch in shards.items():
            if shard in taken.left:
                self._say_left(type_name, shard, epoch, taken.left[shard])
            else:
                self._left.pop((type_name, shard), None)
        await self.secured.next()
        return taken.shards, taken.uses_messages

    def has_left(self, type_name: str, shard: ShardId, epoch: Epoch) -> bool:
        """Tell whether the journal has last said that the shard lies in another one."""
        return self._left.get((type_name, shard)) == epoch

    def fall_silent(self) -> None:
        self.is_silent = True

    def _say_left(self, type_name: str, shard: ShardId, epoch: Epoch, journal: str) -> None:
        if self.has_left(type_name, shard, epoch):
            return
        self._left[type_name, shard] = epoch
        logger.error(
            "shard %s/%d is not started: the database of DATABASE says that it lies in the journal %r, but that journal "
            "says that it has moved to %r. DATABASE may have lost the move with a failover: see manage.py "
            "sharding_doctor", type_name, shard, self.name, journal,
            extra={"action": "shard_left", "journal": self.name},
        )  # fmt: skip


class JournalWatch:
    """Looks at a further journal: whose it is, where it lies, and in which lineage it goes on."""

    def __init__(
        self,
        part: JournalPart,
        me: Incarnation,
        cluster_id: str,
        store: ClusterStore,
        give_up: Callable[[JournalPart], None],
        take_again: Callable[[JournalPart], Awaitable[None]],
    ) -> None:
        """`take_again`: takes the shards whose objects stay in another lineage."""
        self._part = part
        self._me = me
        self._cluster_id = cluster_id
        self._store = store
        self._give_up = give_up
        self._take_again = take_again
        self._place = ""
        self._lineage: Lineage | None = None
        self._left_for: Lineage | None = None
        "The lineage for which the shards were given up last."
        self._told = False
        "The node's row says that it uses this journal."

    async def run(self) -> None:
        while True:
            trouble = await self.look() or await self._use()
            self._say(trouble)
            if trouble and self._told:
                with contextlib.suppress(StoreUnavailable):
                    await self._store.use_journal(self._me, self._part.name, None)
                    self._told = False
            await asyncio.sleep(REFUSED_SECONDS if trouble and not self._place else LOOK_SECONDS)

    async def _use(self) -> str:
        """Let the node's row say that it uses the journal; return why it cannot be used, or
        nothing.

        The cluster may have adopted another database while this one was away. Then shards that were
        started here are given up: what they store is not in that one.
        """
        if self._told:
            return ""
        try:
            known = await self._store.use_journal(self._me, self._part.name, self._place)
        except StoreUnavailable as error:
            return str(error)
        self._told = known == self._place
        if self._told or known is None:
            return ""  # without a row the node is not up yet
        found, self._place = self._place, ""
        self._give_up(self._part)
        if not known:
            return "the cluster knows its database as that of another journal"
        return _elsewhere(self._part.name, known, found)

    async def _own(self) -> Owned:
        part = self._part
        late = asyncio.get_running_loop().call_later(STILL_SECONDS, part.fall_silent)
        try:
            return await part.journal.own(self._cluster_id)
        finally:
            late.cancel()
            part.is_silent = False

    async def look(self) -> str:
        """Look once; return why the journal cannot be used, or nothing."""
        part = self._part
        try:
            found = await self._own()
            if not self._place:
                name, known = await self._store.journal_place(part.name, found.place)
                if name != part.name:
                    return f"its alias leads to the database of the journal {name!r}, and each journal needs one of its own"
                if known != found.place:
                    return _elsewhere(part.name, known, found.place)
                self._place = found.place
        except JournalOfAnother as error:
            return (
                f"its database belongs to another cluster ({error})"
                if str(error)
                else "its database is that of a cluster of its own"
            )
        except (JournalUnavailable, StoreUnavailable) as error:
            return str(error)
        if found.place != self._place:
            return _elsewhere(part.name, self._place, found.place)
        if self._lineage is not None and found.lineage.timeline < self._lineage.timeline:
            return f"its server is on timeline {found.lineage.timeline}, and was left for a newer one"
        if found.lineage != self._lineage:
            if self._lineage is not None:
                self._leave_for(found.lineage)
                try:
                    await self._take_again(part)
                except (JournalUnavailable, StoreUnavailable) as error:
                    return str(error)
            self._lineage = found.lineage
            part.journal.live_in(found.lineage)
        part.deliverer.told(uses_messages=found.uses_messages)
        return ""

    def _leave_for(self, lineage: Lineage) -> None:
        """Give the shards up, once for each lineage: the next look may come here again."""
        if lineage == self._left_for:
            return
        logger.warning(
            "the journal %r goes on at timeline %d, after a failover or a restore: its shards here are given up, "
            "to be read again, in case some of their last events are missing", self._part.name, lineage.timeline,
            extra={"action": "journal_moved_on", "journal": self._part.name},
        )  # fmt: skip
        self._give_up(self._part)
        self._left_for = lineage

    def _say(self, trouble: str) -> None:
        part = self._part
        if bool(trouble) != bool(part.trouble) or (trouble and not self._place and trouble != part.trouble):
            level = logging.ERROR if trouble else logging.INFO
            text = "the journal %r cannot be used: %s" if trouble else "the journal %r is used%s"
            action = "journal_refused" if trouble else "journal_used"
            logger.log(level, text, part.name, trouble, extra={"action": action, "journal": part.name})
        part.trouble = trouble


def _elsewhere(name: str, known: str, found: str) -> str:
    return (
        f"the cluster knows the journal {name!r} as the database {known}, and its alias leads to {found}. If its data was"
        f" moved there, run: manage.py sharding_journals --adopt {name}"
    )
