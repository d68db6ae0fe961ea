"""The asking side of a region: where the shards of one type live, as far as this process had to know.

    Route of one shard

      unknown ──ShardHome──> open ──BeginHandOff──> held
         ^                    │  └──HandBack, NodeGone──> unknown
         │                    └──ShardHome(newer)──> draining ──last outstanding resolved──> open
         └──── first message

Contract (promise 5): envelopes of one shard leave in the order of the calls. None goes to a new home while one that
went to the former home is neither answered, handed back nor fenced. (A reply that is a minute late is not waited for: its
asker was told long ago, it is never sent again, and whenever a newer home is told the former epoch is fenced.) What comes
back goes first, in its old order.
Everything that waits is bounded (promise 9), and whatever cannot wait is refused aloud (promise 8).

Calls change the state; what has to be done is left in `out`, in order, for the shell to carry out.
"""

import math
from collections import deque
from collections.abc import Collection, Iterable, Sequence

import msgspec

from sharding_app.core.histogram import Histogram
from sharding_app.core.ids import Epoch, Incarnation, ShardId, Term
from sharding_app.core.parcel import Parcel


class Forward(msgspec.Struct, frozen=True):
    """Send it: the parcel says where to and at which epoch."""

    parcel: Parcel


class AskHomes(msgspec.Struct, frozen=True):
    """Ask the coordinator (or, when it is silent, the store) where these shards live."""

    shards: list[ShardId]
    again: bool = False
    "They were asked for before, and nobody has answered."


class Refuse(msgspec.Struct, frozen=True):
    """Tell the asker that it failed; `reason` is also the counter's label."""

    parcel: Parcel
    reason: str


RegionEffect = Forward | AskHomes | Refuse

MAX_DEATHS = 2
"A command that was in flight at the death of this many homes may be their cause: it is not sent again."


class RegionLimits(msgspec.Struct, frozen=True):
    max_parcels: int = 100_000
    "Waiting and outstanding together, over all shards of the region."
    max_bytes: int = 256 * 1024 * 1024
    max_total_bytes: int = 512 * 1024 * 1024
    "Of all regions of the process together."
    retry_seconds: float = 0.25
    max_waiting: int | None = None
    "So many wait while their home is not known; then the oldest gives way to the newest. None: no such limit."


SHARE = 0.9
"One shard may fill its type's buffer to this part of the limits: the rest is kept for the others."


class Total:
    """Figures of all regions of a process."""

    __slots__ = ("bytes", "home_seconds")

    def __init__(self) -> None:
        self.bytes = 0
        self.home_seconds = Histogram()
        "From the first question for a shard's home to the word that names it."


class Route:
    """What is known of one shard."""

    __slots__ = (
        "asked_at",
        "bounces",
        "epoch",
        "era",
        "held",
        "home",
        "next_epoch",
        "next_era",
        "next_home",
        "outstanding",
        "shard",
        "size",
        "sought",
        "waiting",
        "wanted_at",
    )

    def __init__(self, shard: ShardId) -> None:
        self.shard = shard
        self.home: Incarnation | None = None
        self.epoch: Epoch = 0
        self.era = 0
        "Epochs are compared within one era (`core.terms`); a later one goes before."
        self.next_era = 0
        self.next_home: Incarnation | None = None
        self.next_epoch: Epoch = 0
        self.held = False
        self.outstanding = 0
        self.size = 0
        "Bytes of its parcels, waiting and outstanding."
        self.waiting: deque[Parcel] = deque()
        self.asked_at = -1.0
        self.wanted_at = -1.0
        "When its home was asked for first; negative: it is not wanted."
        self.bounces = 0
        self.sought = False
        "Its home is wanted even without a message for it."


def outstanding_at(home: Incarnation, pending: Iterable[Parcel]) -> dict[str, list[Parcel]]:
    """The parcels that were sent to a process and are not resolved, by type: one walk for all types."""
    found: dict[str, list[Parcel]] = {}
    for parcel in pending:
        if parcel.home == home:
            found.setdefault(parcel.type, []).append(parcel)
    return found


class Region:
    """The routes of one type in one process. `pending` holds all unresolved parcels of the process, by request."""

    def __init__(
        self,
        type_name: str,
        pending: dict[int, Parcel],
        limits: RegionLimits | None = None,
        total: Total | None = None,
    ) -> None:
        self.type = type_name
        self.limits = limits or RegionLimits()
        self.pending = pending
        self.routes: dict[ShardId, Route] = {}
        self.out: list[RegionEffect] = []
        self.term: Term = 0
        self.parcels = 0
        self.bytes = 0
        self.total = total or Total()
        self._shard_bytes = int(SHARE * self.limits.max_bytes)
        self._shard_parcels = math.ceil(SHARE * self.limits.max_parcels)
        self._unsettled: set[ShardId] = set()
        "Those whose home is wanted, by a message or without one; and some that are settled again."
        self._shards_of: dict[Incarnation, set[ShardId]] = {}
        "Which shards were ever said to live there: what has to be looked at when it is gone."

    @property
    def waiting(self) -> int:
        """How many parcels wait here for a home; the others are under way."""
        return sum(len(self.routes[shard].waiting) for shard in self._unsettled)

    # -- From the callers ------------------------------------------------------------------------------------------

    def submit(self, parcel: Parcel, now: float) -> bool:
        """Take a new parcel. True: it may go out at once (the fast path leaves nothing in `out`)."""
        limits, size, route, total = self.limits, parcel.size, self.routes.get(parcel.shard), self.total
        if (
            self.parcels >= limits.max_parcels
            or self.bytes + size > limits.max_bytes
            or total.bytes + size > limits.max_total_bytes
        ):
            self.out.append(Refuse(parcel, "buffer_full"))
            return False
        if route is None:
            route = self.routes[parcel.shard] = Route(parcel.shard)
        elif (
            route.size + size > self._shard_bytes
            or route.outstanding + len(route.waiting) >= self._shard_parcels
        ):
            self.out.append(Refuse(parcel, "buffer_full"))
            return False
        self.pending[parcel.request] = parcel
        self.parcels += 1
        self.bytes += size
        total.bytes += size
        route.size += size
        if route.home is not None and not route.held and not route.waiting and route.next_home is None:
            parcel.home = route.home
            parcel.epoch = route.epoch
            route.outstanding += 1
            return True
        route.waiting.append(parcel)
        self._unsettled.add(parcel.shard)
        if self.limits.max_waiting is not None and len(route.waiting) > self.limits.max_waiting:
            self._refuse(route.waiting.popleft(), "buffer_full")
        if route.home is None and route.asked_at < 0:
            self._ask(route, now)
        return False

    def find(self, shards: Iterable[ShardId], now: float) -> None:
        """Learn where these live, and have those placed that live nowhere, without a message for them."""
        for shard in shards:
            route = self.routes.setdefault(shard, Route(shard))
            if route.home is None:
                route.sought = True
                self._unsettled.add(shard)
                self._ask(route, now)

    # -- From the homes --------------------------------------------------------------------------------------------

    def resolved(self, parcel: Parcel, now: float) -> None:
        """The home has answered, failed or done it (the shell has taken it out of `pending`)."""
        route, size = self.routes[parcel.shard], parcel.size
        self.parcels -= 1
        self.bytes -= size
        self.total.bytes -= size
        route.size -= size
        route.bounces = 0
        route.outstanding -= 1
        if not route.outstanding and (route.next_home is not None or route.waiting):
            self._advance(route, now)

    def handed_back(self, home: Incarnation, epoch: Epoch, parcels: Sequence[Parcel], now: float) -> None:
        """The former home did not handle these."""
        returned: dict[ShardId, list[Parcel]] = {}
        for parcel in parcels:
            if parcel.home == home:
                returned.setdefault(parcel.shard, []).append(parcel)
        for shard, group in returned.items():
            route = self.routes[shard]
            if route.home == home and route.epoch == group[0].epoch:
                route.home = None
                route.bounces += 1
            self._put_back(route, group)
            route.outstanding -= len(group)
            self._advance(route, now)

    def abandon(self, parcel: Parcel, now: float) -> None:
        """Nobody waits for this parcel any more. If it still waits here it is forgotten; else its home resolves it."""
        parcel.told = True
        if parcel.home is None:
            route = self.routes[parcel.shard]
            if parcel in route.waiting:
                route.waiting.remove(parcel)
            self._forget(parcel)

    # -- From the coordinator --------------------------------------------------------------------------------------

    def home_told(self, shard: ShardId, home: Incarnation, epoch: Epoch, now: float, era: int = 0) -> None:
        """ShardHome, or a row of the store."""
        route = self.routes.get(shard)
        if route is None or (era, epoch) < max((route.era, route.epoch), (route.next_era, route.next_epoch)):
            return
        self._shards_of.setdefault(home, set()).add(shard)
        route.sought = False
        if route.wanted_at >= 0:
            self.total.home_seconds.add(now - route.wanted_at)
            route.wanted_at = -1.0
        if route.outstanding and ((route.era, route.epoch) != (era, epoch) or route.home is None):
            route.next_home, route.next_era, route.next_epoch = home, era, epoch
            route.held = False
            return
        if (era, epoch) > (route.era, route.epoch):
            route.bounces = 0
        route.home, route.era, route.epoch = home, era, epoch
        route.next_home, route.next_era, route.next_epoch = None, 0, 0
        route.held = False
        self._advance(route, now)

    def hand_off_begins(self, shards: Iterable[ShardId], now: float) -> None:
        """BeginHandOff: hold what is sent to these shards until their home is told again."""
        for shard in shards:
            route = self.routes.get(shard)
            if route is not None and route.home is not None:
                route.held = True
                route.asked_at = now

    def left(self, incarnation: Incarnation, now: float) -> None:
        """That home ends in order: nothing more is sent there, and what is outstanding there comes back."""
        self.hand_off_begins(
            [
                shard
                for shard in sorted(self._shards_of.get(incarnation, ()))
                if self.routes[shard].home == incarnation
            ],
            now,
        )

    def knows(self, incarnation: Incarnation) -> bool:
        """Tell whether any route has led there."""
        return incarnation in self._shards_of

    def gone(
        self,
        incarnation: Incarnation,
        now: float,
        lost: Iterable[Parcel] | None = None,
        unsent: Iterable[Parcel] = (),
    ) -> None:
        """NodeGone: that process can commit nothing more and answers nothing more. `lost`: the parcels of this type that are
        outstanding there, if they have been looked up; of these `unsent` never left this process."""
        if lost is None:
            lost = outstanding_at(incarnation, self.pending.values()).get(self.type, ())
        never_left = {each.request for each in unsent}
        by_shard: dict[ShardId, list[Parcel]] = {}
        for parcel in lost:
            by_shard.setdefault(parcel.shard, []).append(parcel)
        for shard, group in by_shard.items():
            route = self.routes[shard]
            route.outstanding -= len(group)
            self._put_back(
                route, [each for each in group if each.request in never_left or self._goes_again(each)]
            )
        for shard in sorted(self._shards_of.pop(incarnation, set()) | by_shard.keys()):
            route = self.routes[shard]
            if route.next_home == incarnation:
                route.next_home, route.next_era, route.next_epoch = None, 0, 0
            if route.home == incarnation:
                route.home = None
                route.held = False
            self._advance(route, now)

    def _goes_again(self, parcel: Parcel) -> bool:
        """Its home has died, and may have handled it before: tell whether it may be handled again."""
        parcel.deaths += 1
        parcel.attempt += 1
        if parcel.told or not parcel.safe or parcel.deaths >= MAX_DEATHS:
            self._refuse(parcel, "poisonous" if parcel.deaths >= MAX_DEATHS else "fate_unknown")
            return False
        return True

    def no_home(self, reason: str, now: float, shards: Collection[ShardId] = ()) -> None:
        """No live node hosts the type (or these shards of it): what waits for an unknown home is refused."""
        routes = (
            [self.routes[each] for each in shards if each in self.routes] if shards else self.routes.values()
        )
        for route in routes:
            if route.home is None and route.next_home is None:
                route.asked_at = route.wanted_at = -1.0
                while route.waiting:
                    self._refuse(route.waiting.popleft(), reason)

    def tick(self, now: float) -> None:
        """Ask again for the homes that are still not known, and for holds that nobody has lifted."""
        again = []
        for shard in list(self._unsettled):
            route = self.routes[shard]
            if not (route.waiting or route.sought):
                self._unsettled.discard(shard)
                if route.home is None:
                    route.asked_at = route.wanted_at = -1.0  # whoever wants it next begins the search
                continue
            wants = (route.home is None or route.held) and route.next_home is None
            if wants and now - route.asked_at >= self.limits.retry_seconds:
                route.asked_at = now
                again.append(route.shard)
        if again:
            self.out.append(AskHomes(sorted(again), again=True))

    # -- Inside ----------------------------------------------------------------------------------------------------

    def _ask(self, route: Route, now: float) -> None:
        route.asked_at = now
        if route.wanted_at < 0:
            route.wanted_at = now
        last = self.out[-1] if self.out else None
        if isinstance(last, AskHomes) and not last.again:
            last.shards.append(route.shard)
        else:
            self.out.append(AskHomes([route.shard]))

    def _put_back(self, route: Route, parcels: list[Parcel]) -> None:
        for parcel in sorted(parcels, key=lambda each: each.request, reverse=True):
            parcel.home = None
            if parcel.told:
                self._forget(parcel)
            else:
                route.waiting.appendleft(parcel)
                self._unsettled.add(route.shard)
        if len(route.waiting) > len(parcels):
            route.waiting = deque(sorted(route.waiting, key=lambda each: each.request))

    def _advance(self, route: Route, now: float) -> None:
        """Move a route on as far as it can go now."""
        if route.outstanding:
            if route.home is not None and not route.held and route.next_home is None and route.waiting:
                self._forward_all(route)
            return
        if route.next_home is not None:
            route.home, route.era, route.epoch = route.next_home, route.next_era, route.next_epoch
            route.next_home, route.next_era, route.next_epoch = None, 0, 0
            route.bounces = 0
        if route.home is None:
            if route.waiting and route.bounces <= 1:
                self._ask(route, now)
            elif route.waiting and route.asked_at < 0:
                # One home has handed back twice: `tick` asks after a pause, or the two would go in circles.
                route.asked_at = now
        elif not route.held:
            self._forward_all(route)

    def _forward_all(self, route: Route) -> None:
        route.asked_at = -1.0
        while route.waiting:
            parcel = route.waiting.popleft()
            parcel.home = route.home
            parcel.epoch = route.epoch
            route.outstanding += 1
            self.out.append(Forward(parcel))

    def _refuse(self, parcel: Parcel, reason: str) -> None:
        if parcel.attempt > 1 and reason != "poisonous":
            # It had reached a home that died, and may have taken effect there, whatever stops it now.
            reason = "fate_unknown"
        self._forget(parcel)
        self.out.append(Refuse(parcel, reason))

    def _forget(self, parcel: Parcel) -> None:
        self.pending.pop(parcel.request, None)
        size = parcel.size
        self.parcels -= 1
        self.bytes -= size
        self.total.bytes -= size
        self.routes[parcel.shard].size -= size
