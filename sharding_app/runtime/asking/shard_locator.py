"""How a process learns the homes of shards, and the coordinator.

It asks the coordinator first. When that is unknown or does not answer, the store's rows say the
same: known homes keep working while there is no coordinator (promise 6), and "no node hosts this
type" is learnt within a second. A process that gets no acknowledgement from a node reports it to a
few others (`protocol.liveness.suspicions`), and watches the store until that node is back or gone.
It also watches a node that owes it answers: no other process may know that it waits.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from sharding_app.ports.clock import Clock
from sharding_app.ports.store import ClusterStore, StoreRefused, StoreUnavailable
from sharding_app.protocol.coordinator.terms import era_of
from sharding_app.protocol.ids import Incarnation, ShardId, Term, has_no_row
from sharding_app.protocol.liveness.suspicions import Suspicions
from sharding_app.protocol.messages import AnyMessage, GetShardHome, RegisterProxy, Suspect
from sharding_app.protocol.numbering import Numbering
from sharding_app.protocol.records import CoordinatorRow, Member, Server
from sharding_app.runtime.base.waiting import set_within

logger = logging.getLogger("sharding.region")

LOOK_SECONDS = 0.1
LOOK_MAX_SECONDS = 1.0
NO_HOST_AFTER_SECONDS = 0.4
PROXY_RENEW_SECONDS = 10.0
GRACE_FOR_NODEGONE_SECONDS = 0.2
TOGETHER_SECONDS = 0.005
"""Links that fall silent within this time are reported in one message."""
TELL_AGAIN_SECONDS = 0.25
"""Time between two reports, for links that fall silent one after the other: a lossy layer hits
all.
"""


class Told(Protocol):
    """The receiver of homes (`runtime.asking.regions`)."""

    def homes_told(
        self, type_name: str, home: Incarnation, shards: Iterable[tuple[ShardId, int]], term: Term = 0
    ) -> None: ...

    def no_home(self, type_name: str, reason: str) -> None: ...

    def numbering(self, type_name: str) -> Numbering | None: ...

    def renumbered(self, type_name: str, numbering: Numbering, term: Term) -> None: ...


class ShardLocator:
    def __init__(
        self,
        me: Incarnation,
        store: ClusterStore,
        clock: Clock,
        put: Callable[[Incarnation, AnyMessage], bool],
        *,
        is_proxy: bool,
        on_gone: Callable[[Incarnation], None],
        on_era: Callable[[int], None],
        is_silent: Callable[[Incarnation], bool],
    ) -> None:
        self.coordinator: Incarnation | None = None
        self.term: Term = 0
        self.told: Told
        self.on_coordinator: Callable[[Term, Incarnation | None], None] = lambda term, incarnation: None
        self.on_elsewhere: Callable[[], None] = lambda: None
        "Called when the rows are those of another database system, with another identifier."
        self._system: str | None = None
        self._me = me
        self._store = store
        self._clock = clock
        self._put = put
        self._is_proxy = is_proxy
        self._on_gone = on_gone
        self._on_era = on_era
        self._is_silent = is_silent
        self._numbers = 0, 0
        "Era of the numbers of shards that were read last, and the sum of their revisions."
        "`CoordinatorRow.numbers` when they were read last."
        self._wanted: dict[str, dict[ShardId, float]] = {}
        self._doubted: dict[Incarnation, float] = {}
        self._suspicions = Suspicions(me)
        self._told_at = float("-inf")
        self._telling = False
        self._watched: dict[Incarnation, float] = {}
        "Nodes that owe answers. They are trusted until their row is gone."
        self._members: list[Member] = []
        self._renewed_at: dict[str, float] = {}
        self._wake = asyncio.Event()

    def coordinator_told(self, incarnation: Incarnation | None, term: Term) -> None:
        """Note the coordinator, as RegisterAck, a pulse of the lifeline or the store names it."""
        if term < self.term or incarnation is None:
            return
        changed = incarnation != self.coordinator
        news = changed or term != self.term
        if era_of(term) > era_of(self.term):
            self._on_era(era_of(term))
        self.coordinator, self.term = incarnation, term
        if news:
            self.on_coordinator(term, incarnation)
        if changed:
            self._tell_suspicions()
            self._renewed_at.clear()
            for type_name, shards in self._wanted.items():
                self._ask_coordinator(type_name, list(shards))

    def ask(self, type_name: str, shards: list[ShardId], *, again: bool) -> None:
        """Find the homes of these shards. The answer comes through `told`."""
        now = self._clock.now()
        wanted = self._wanted.setdefault(type_name, {})
        for shard in shards:
            wanted.setdefault(shard, now)
        if self.coordinator is not None and self.coordinator not in self._doubted:
            self._ask_coordinator(type_name, shards)
        if again or self.coordinator is None:
            self._wake.set()

    def found(self, type_name: str, shards: Iterable[ShardId]) -> None:
        """Look for these shards no longer."""
        wanted = self._wanted.get(type_name)
        if wanted:
            for shard in shards:
                wanted.pop(shard, None)

    def not_found(self, type_name: str) -> None:
        self._wanted.pop(type_name, None)

    def suspect(self, incarnation: Incarnation) -> None:
        """Report a process whose link is silent to a few others, and look at the store soon."""
        if incarnation == self._me or has_no_row(incarnation):
            return
        if self._suspicions.add(incarnation):
            self._doubted[incarnation] = self._clock.now()
            self._tell_soon()
            self._wake.set()

    def _tell_soon(self) -> None:
        if self._doubted and not self._telling:
            self._telling = True
            wait = max(TOGETHER_SECONDS, self._told_at + TELL_AGAIN_SECONDS - self._clock.now())
            asyncio.get_running_loop().call_later(wait, self._tell_suspicions)

    def _tell_suspicions(self) -> None:
        self._telling = False
        words = self._suspicions.to_tell(self.coordinator, self._members)
        if words:
            self._told_at = self._clock.now()
        for to, suspects in words.items():
            self._put(to, Suspect(suspects))

    def _trust(self, incarnation: Incarnation) -> None:
        self._doubted.pop(incarnation, None)
        self._suspicions.over(incarnation)

    def watch(self, homes: set[Incarnation]) -> None:
        """Watch these homes, and no others: they have owed answers for a while."""
        if not homes and not self._watched:
            return
        now, began = self._clock.now(), not self._watched
        self._watched = {each: self._watched.get(each, now) for each in sorted(homes - {self._me})}
        if began and self._watched:
            self._wake.set()

    def gone(self, incarnation: Incarnation) -> None:
        self._trust(incarnation)
        self._watched.pop(incarnation, None)
        if self.coordinator == incarnation:
            self.coordinator = None
            self.on_coordinator(self.term, None)
            self._wake.set()

    async def run(self) -> None:
        """Look at the store while something is unknown or in doubt; otherwise wait."""
        pause = LOOK_SECONDS
        while True:
            if not self._looks_for_something():
                pause = LOOK_SECONDS
                self._wake.clear()
                await self._wake.wait()
            self._wake.clear()
            try:
                await self._look()
            except StoreUnavailable as error:
                logger.info("the store is not reachable: %s", error, extra={"action": "homes_wait"})
            if await set_within(self._wake, pause):
                pause = LOOK_SECONDS
            else:
                pause = min(pause * 1.5, LOOK_MAX_SECONDS)

    def _looks_for_something(self) -> bool:
        return bool(self._doubted or self._watched or any(self._wanted.values()))

    async def _look(self) -> None:
        row = await self._store.coordinator()
        if row.incarnation is not None and row.incarnation not in self._doubted:
            self.coordinator_told(row.incarnation, row.term)
        await self._look_for_numbers(row)
        # A late answer says nothing of nodes that joined after the question.
        asked = self._clock.now()
        server, self._members = await self._store.members()
        if self._system != server.system:
            if self._system is not None:
                self.on_elsewhere()
            self._system = server.system
        known = {each.incarnation: each for each in self._members}
        for incarnation, since in list((self._watched | self._doubted).items()):
            if incarnation not in known:
                if asked - since > GRACE_FOR_NODEGONE_SECONDS:
                    self._on_gone(incarnation)
            elif not self._is_silent(incarnation):
                self._trust(incarnation)
        self._tell_soon()
        for type_name, wanted in list(self._wanted.items()):
            try:
                await self._look_for(type_name, wanted, known, server, asked, row.term)
            except StoreRefused as error:
                logger.warning(
                    "homes of %s cannot be looked up: %s", type_name, error, extra={"action": "homes_refused"}
                )
                self.not_found(type_name)
                self.told.no_home(type_name, "refused")

    async def _look_for(
        self,
        type_name: str,
        wanted: dict[ShardId, float],
        known: dict[Incarnation, Member],
        server: Server,
        asked: float,
        term: Term,
    ) -> None:
        shards = [shard for shard, since in wanted.items() if asked - since >= LOOK_SECONDS]
        if not shards:
            return
        for row in await self._store.homes(type_name, shards):
            if row.numbering is not None:
                self.told.renumbered(type_name, row.numbering, term)
            if row.step == "home" and row.home in known and row.home not in self._doubted:
                self.told.homes_told(type_name, row.home, [(row.shard, row.epoch)], term)
        # After a restart of the server no node has its locks yet. Nodes of before get time to come
        # back.
        hosted = any(
            type_name in each.types and (each.locks or each.state == "joining" or each.server != server)
            for each in known.values()
        )
        oldest = min(wanted.values(), default=asked)
        if not hosted and asked - oldest >= NO_HOST_AFTER_SECONDS:
            self.not_found(type_name)
            self.told.no_home(type_name, "no_host")

    async def _look_for_numbers(self, row: CoordinatorRow) -> None:
        """Read the numbers of shards, if any have changed: a shard that is sought may be of a
        former number. In a new era others may have the same revisions.
        """
        numbers = era_of(row.term), row.numbers
        if numbers != self._numbers:
            for each in await self._store.types():
                self.told.renumbered(each.name, each.numbering, row.term)
            self._numbers = numbers

    def _ask_coordinator(self, type_name: str, shards: list[ShardId]) -> None:
        if self.coordinator is None:
            return
        now = self._clock.now()
        if self._is_proxy and now - self._renewed_at.get(type_name, float("-inf")) > PROXY_RENEW_SECONDS:
            self._renewed_at[type_name] = now
            self._put(self.coordinator, RegisterProxy(self._me, sorted({*self._renewed_at})))
        known = self.told.numbering(type_name)
        changed = known if known is not None and known.revision else None
        self._put(self.coordinator, GetShardHome(type_name, shards, changed))
