"""Further journals: shards that are not taken there, or too late; a journal that goes back in time;
journals that are mixed up, or wait for each other.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any
from weakref import WeakSet

from msgspec import structs

from sharding_app.adapters.memory.cluster_rows import ClusterRows
from sharding_app.adapters.memory.journal import MemoryJournal
from sharding_app.adapters.memory.journal_writes import JournalWrites
from sharding_app.adapters.memory.locks import Lock
from sharding_app.adapters.memory.message_writes import MARKS, MessageWrites
from sharding_app.adapters.memory.steps import Pause
from sharding_app.ports.deliveries import MessageChanges
from sharding_app.ports.journal import JournalUnavailable
from sharding_app.protocol.ids import Incarnation, Term
from sharding_app.protocol.journals import CLUSTERS_OWN
from sharding_app.protocol.records import Lineage
from sharding_app.runtime.base.shared_round import Rounds
from sharding_app.runtime.execution.foreign import ForeignMessages
from sharding_app.runtime.hosting.journal_part import JournalPart
from sharding_app.runtime.hosting.node_host import NodeHost
from sharding_app.runtime.hosting.shards import ShardLife
from sharding_app.runtime.hosting.type_host import TypeHost
from tests.simulation.mistakes.mistake import Mistake, async_nothing, no, nothing

LATE_SECONDS = 0.1


def _trusts_the_cluster(real: Any) -> Any:
    def fence(self: JournalWrites, claims: Any) -> Any:
        if not self._server.journal_of:
            yield from real(self, claims)

    return fence


def _takes_nothing(real: Any) -> Any:
    async def take(
        self: JournalPart, type_name: str, type_id: int, me: Incarnation, shards: Any, numbers: Any
    ) -> Any:
        return (
            (frozenset(shards), False)
            if self.name
            else await real(self, type_name, type_id, me, shards, numbers)
        )

    return take


def _lets_any_epoch_take(real: Any) -> Any:
    def take(self: ClusterRows, type_name: str, type_id: int, shards: Any, home: Incarnation) -> Any:
        for shard in shards:
            self.shards.pop((type_name, shard), None)
        return real(self, type_name, type_id, shards, home)

    return take


def _is_at_home(_: Any) -> Any:
    async def at_home(self: TypeHost, slot: Any) -> bool:
        return True

    return at_home


def _asks_the_cluster(real: Any) -> Any:
    async def at_home(self: TypeHost, slot: Any) -> bool:
        shard = slot.shard
        while not slot.is_gone:
            try:
                journal = self._all_journals[""]
                if self.journal_name:
                    row = await self.row_of(shard.number)
                    return row is not None and (row.epoch, row.home) == (shard.epoch, self.me)
                return bool(await journal.is_home(self.type_id, shard.number, shard.epoch, self.me))
            except JournalUnavailable:
                await asyncio.sleep(LATE_SECONDS)
        return False

    return at_home


def _appends_to_the_first(real: Any) -> Any:
    first: dict[str, Any] = {}

    def init(self: JournalPart, name: str, journal: Any, writer: Any, *rest: Any) -> None:
        if not name:
            first["writer"] = writer
        real(self, name, journal, first["writer"], *rest)

    return init


def _forgets_who_was_stopped(real: Any) -> Any:
    def init(self: ShardLife, host: Any, config: Any, on_stopped: Any) -> None:
        real(self, host, config, on_stopped)
        self._stopped_at = {}

    return init


def _waits_for_all(real: Any) -> Any:
    all_rounds: WeakSet[Rounds] = WeakSet()

    async def next_one(self: Rounds) -> None:
        """Secure each journal before anything of one is read."""
        all_rounds.add(self)
        for each in list(all_rounds):
            if each is not self and _client(each) == _client(self):
                with suppress(JournalUnavailable):
                    await real(each)
        await real(self)

    return next_one


def _client(rounds: Rounds) -> str:
    """Return the node whose journal these secure."""
    return str(rounds._job.__self__._reader.client)  # type: ignore[attr-defined]


def _marks_anew(self: MessageWrites, takes: Any) -> Any:
    yield Lock(MARKS, shared=True)


def _without_a_mark(real: Any) -> Any:
    def stage(self: MessageWrites, changes: MessageChanges, claim: Any = None) -> Any:
        return real(self, changes._replace(takes=()), claim)

    return stage


def _with_the_former_revisions(real: Any) -> Any:
    def raise_term(
        self: ClusterRows, incarnation: Incarnation, lineage: Lineage | None = None, now: float = 0.0
    ) -> Term:
        former = dict(self.types)
        term: Term = real(self, incarnation, lineage, now)
        self.types.update(former)
        return term

    return raise_term


def _wherever_they_lie(real: Any) -> Any:
    def resize(self: ClusterRows, type_name: str, known: int, wanted: int) -> bool:
        """Let shards of several journals become one."""
        journals, self.journals = self.journals, dict.fromkeys(self.journals, CLUSTERS_OWN)
        try:
            return bool(real(self, type_name, known, wanted))
        finally:
            self.journals = journals

    return resize


def _makes_no_row(real: Any) -> Any:
    def restore(self: ClusterRows, read: frozenset[str], found: Any) -> bool:
        return bool(real(self, read, []))

    return restore


def _takes_copies_for_shards(real: Any) -> Any:
    def restore(self: ClusterRows, read: frozenset[str], found: Any) -> bool:
        kept = [each if each.step == "home" else structs.replace(each, step="stopped") for each in found]
        return bool(real(self, read, kept))

    return restore


def _looks_for_no_row(real: Any) -> Any:
    async def look(self: ForeignMessages, message: Any, journal: str) -> None:
        return None

    return look


def _unmarks_at_any_epoch(real: Any) -> Any:
    def unmark(self: MessageWrites, messages: Any, claim: Any) -> Any:
        yield Pause.COMMIT
        for message in messages:
            self._rows.marks.pop(message, None)

    return unmark


def _believes_what_it_sees(_: Any) -> Any:
    """The stand-in of a server tells of a mark that its standby may lack."""

    async def stage(
        self: MemoryJournal, sends: Any, cancels: Any = (), takes: Any = (), *, claim: Any = None
    ) -> Any:
        changes = MessageChanges(list(sends), list(cancels), list(takes))
        return await self._after_late_ones("stage", lambda: self._writes.messages.stage(changes, claim))

    return stage


JOURNALS: dict[str, Mistake] = {
    "earlier_epochs_take_in_a_journal": Mistake((1,), ClusterRows, "take", _lets_any_epoch_take),
    "a_journal_has_no_fence": Mistake((1,), JournalWrites, "fence", _trusts_the_cluster),
    "a_journal_is_not_taken": Mistake((8, 10, 14), JournalPart, "take", _takes_nothing),
    "lost_takes_stay_lost": Mistake((10, 18), NodeHost, "take_again", lambda _: async_nothing),
    "a_journals_lineage_is_not_looked_at": Mistake((1, 2, 3, 4), NodeHost, "give_up", lambda _: nothing),
    "fenced_queries_ask_no_row": Mistake((2,), TypeHost, "at_home", _is_at_home),
    "only_the_cluster_says_who_is_home": Mistake((2,), TypeHost, "at_home", _asks_the_cluster),
    "appends_to_the_wrong_journal": Mistake((1,), JournalPart, "__init__", _appends_to_the_first),
    "shards_stop_in_one_journal": Mistake((2,), ShardLife, "__init__", _forgets_who_was_stopped),
    "journals_wait_for_each_other": Mistake((10,), Rounds, "next", _waits_for_all),
    "rows_elsewhere_are_not_looked_for": Mistake((5, 15), ForeignMessages, "look", _looks_for_no_row),
    "marks_in_hand_are_removed": Mistake((5, 15), ForeignMessages, "is_in_hand", lambda _: no),
    "former_homes_remove_marks": Mistake((5, 15), MessageWrites, "unmark", _unmarks_at_any_epoch),
    "marks_are_not_looked_at": Mistake((5, 15), MessageWrites, "_mark", lambda _: _marks_anew),
    "replies_leave_no_mark": Mistake((5,), MessageWrites, "stage", _without_a_mark),
    "merged_shards_lie_apart": Mistake((1, 2, 4), ClusterRows, "resize", _wherever_they_lie),
    "multiplied_shards_lie_anywhere": Mistake((1, 4), ClusterRows, "_journal_of_group", lambda _: nothing),
    "a_journal_keeps_former_numbers": Mistake((0, 1, 2, 10, 15), JournalWrites, "_refile", lambda _: nothing),
    "lost_rows_are_not_made_again": Mistake((1, 2, 4), ClusterRows, "restore", _makes_no_row),
    "a_copy_passes_for_its_shard": Mistake((1,), ClusterRows, "restore", _takes_copies_for_shards),
    "shards_that_have_left_are_given_up": Mistake((14,), JournalPart, "has_left", lambda _: no),
    "resizes_wait_for_no_journal": Mistake((1, 2, 4), ClusterRows, "check_journals", lambda _: nothing),
    "no_journal_stands_still": Mistake((10,), JournalPart, "stands_still", lambda _: no),
    "marks_are_told_before_the_standby_has_them": Mistake(
        (15,), MemoryJournal, "stage", _believes_what_it_sees, direct=True
    ),
    "new_lineages_raise_no_revisions": Mistake((10,), ClusterRows, "raise_term", _with_the_former_revisions),
}
