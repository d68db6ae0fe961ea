"""The asking side of a region: the homes of one type's shards, as far as this process has to know
them.

    Route of one shard (`RouteState`)

      unknown ──ShardHome──> open ──BeginHandOff──> held ──ShardHome──> open
         ^                    │  └──HandBack, NodeGone──> unknown
         │                    └──ShardHome(newer)──> draining ──last outstanding resolved──> open
         └──── first message                            │
                                                        └──BeginHandOff──> draining, then held

Contract (promise 5): envelopes of one shard leave in the order of the calls. A call goes to a new
home only after every call to the former home is answered, handed back or fenced. Calls that come
back go first, in their old order. When a home dies, a call there goes again unless a later one to
the same entity does not.

When the type gets other numbers of shards, each waiting call goes to the route of its new shard. A
call that is outstanding at its former one is *astray*: the new route waits for it too, so that no
later call to the same entity overtakes it.

Exception: a reply that is a minute late is not waited for. That is safe: its asker has got its
timeout, the call is never sent again, and a newer home is announced only after the former epoch is
fenced.

Everything that waits is bounded (promise 9), and a call that cannot wait is refused with an error
(promise 8).

Calls change the state and append effects to `out`, in order; the shell carries them out.
"""

import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from enum import IntEnum

import msgspec

from sharding_app.protocol.histogram import Histogram
from sharding_app.protocol.ids import EntityId, Epoch, Incarnation, ShardId, Term
from sharding_app.protocol.messages import MOST_LATER
from sharding_app.protocol.pending_call import PendingCall
from sharding_app.protocol.transitions import transitions


class Forward(msgspec.Struct, frozen=True):
    """Send the call: it names its home and epoch."""

    pending: PendingCall


class AskHomes(msgspec.Struct, frozen=True):
    """Ask the coordinator (or, when it is silent, the store) where these shards live."""

    shards: list[ShardId]
    again: bool = False
    "They were asked for before, without an answer."


class Refuse(msgspec.Struct, frozen=True):
    """Fail the call; `reason` is also the counter's label."""

    pending: PendingCall
    reason: str


RegionEffect = Forward | AskHomes | Refuse


class Later(msgspec.Struct):
    """Calls to one entity that were outstanding at a dead home, latest first: their callers' ids or
    their requests.
    """

    calls: list[int | str] = []
    leaves_no_trace: bool = False
    "One of them may have taken effect, and no journal could tell."


MAX_DEATHS = 2
"""A command that was in flight at the death of this many homes may be the cause: it is not sent
again."""


class RegionLimits(msgspec.Struct, frozen=True):
    max_calls: int = 100_000
    "Waiting and outstanding together, over all shards of the region."
    max_bytes: int = 256 * 1024 * 1024
    max_total_bytes: int = 512 * 1024 * 1024
    "Of all regions of the process together."
    retry_seconds: float = 0.25
    max_waiting: int | None = None
    """Most calls of a shard that wait while its home is unknown; then the oldest gives way to the
    newest. None: no such limit."""


OVERHEAD_BYTES = 64
"""About the bytes of a call besides its arguments."""
SHARE = 0.9
"One shard may fill this part of its type's limits: the rest is kept for the others."


class Total:
    """Figures of all regions of a process."""

    __slots__ = ("bytes", "home_seconds")

    def __init__(self) -> None:
        self.bytes = 0
        self.home_seconds = Histogram()
        "From the first question for a shard's home to the message that names it."


class RouteState(IntEnum):
    UNKNOWN = 1
    "No home is known."
    OPEN = 2
    "Calls go to the home."
    HELD = 3
    "The home hands the shard off: calls wait until a home is announced."
    DRAINING = 4
    "A newer home is known: calls wait for the former home to resolve those that it has."
    DRAINING_HELD = 5
    "The same, and a hand-off has begun since: the newer home will be held."


OPEN = RouteState.OPEN
_HELD = {
    RouteState.OPEN: RouteState.HELD,
    RouteState.HELD: RouteState.HELD,
    RouteState.DRAINING: RouteState.DRAINING_HELD,
    RouteState.DRAINING_HELD: RouteState.DRAINING_HELD,
}
"By the state of a route with a home: its state after the begin of a hand-off."
_DRAINED = {RouteState.DRAINING: RouteState.OPEN, RouteState.DRAINING_HELD: RouteState.HELD}
"By the state of a draining route: its state when it has one home again."

ROUTE = transitions(
    "route",
    {
        RouteState.UNKNOWN: [RouteState.OPEN, RouteState.DRAINING],
        RouteState.OPEN: [RouteState.OPEN, RouteState.UNKNOWN, RouteState.HELD, RouteState.DRAINING],
        RouteState.HELD: [RouteState.HELD, RouteState.UNKNOWN, RouteState.OPEN, RouteState.DRAINING],
        RouteState.DRAINING: [
            RouteState.DRAINING, RouteState.UNKNOWN, RouteState.OPEN, RouteState.DRAINING_HELD,
        ],
        RouteState.DRAINING_HELD: [
            RouteState.DRAINING_HELD, RouteState.UNKNOWN, RouteState.OPEN, RouteState.HELD, RouteState.DRAINING,
        ],
    },
)  # fmt: skip


class Route:
    """The way to one shard."""

    __slots__ = (
        "asked_at",
        "astray",
        "bounces",
        "epoch",
        "era",
        "home",
        "next_epoch",
        "next_era",
        "next_home",
        "outstanding",
        "shard",
        "size",
        "sought",
        "state",
        "waiting",
        "wanted_at",
    )

    def __init__(self, shard: ShardId) -> None:
        self.shard = shard
        self.state = RouteState.UNKNOWN
        self.home: Incarnation | None = None
        self.epoch: Epoch = 0
        self.era = 0
        "Epochs are compared within one era (`protocol.coordinator.terms`); a later era wins."
        self.next_era = 0
        self.next_home: Incarnation | None = None
        self.next_epoch: Epoch = 0
        self.outstanding = 0
        self.astray = 0
        "Outstanding calls of its entities at their former shards; counted in `outstanding` too."
        self.size = 0
        "Bytes of its calls, waiting and outstanding."
        self.waiting: OrderedDict[int, PendingCall] = OrderedDict()
        """By request, in order. Thousands of callers may give up at once, whose calls stand among
        tens of thousands."""
        self.asked_at = -1.0
        self.wanted_at = -1.0
        "When its home was first asked for; negative: it is not wanted."
        self.bounces = 0
        self.sought = False
        "Its home is wanted even without a message for it."

    def become(self, state: RouteState) -> None:
        self.state = ROUTE[self.state][state]

    def next(self) -> PendingCall:
        """Take the first call that waits."""
        return self.waiting.popitem(last=False)[1]

    def sort(self) -> None:
        """Put the calls that wait in the order in which they were made."""
        self.waiting = OrderedDict(sorted(self.waiting.items()))

    def drop_next(self) -> None:
        self.next_home, self.next_era, self.next_epoch = None, 0, 0


def _wait_for_astray(route: Route) -> None:
    """Keep an open route from sending while calls are astray. Its home may be that of after the
    resize already: the calls go there then.
    """
    if route.astray and route.state is OPEN:
        route.next_home, route.next_era, route.next_epoch = route.home, route.era, route.epoch
        route.become(RouteState.DRAINING)


def outstanding_at(home: Incarnation, calls: Iterable[PendingCall]) -> dict[str, list[PendingCall]]:
    """Return the unresolved calls at a process, by type: one walk for all types."""
    found: dict[str, list[PendingCall]] = {}
    for pending in calls:
        if pending.home == home:
            found.setdefault(pending.call.type, []).append(pending)
    return found


class RegionRoutes:
    """The routes of one type in one process.

    `pending` holds all unresolved calls of the process, by request.
    """

    def __init__(
        self,
        type_name: str,
        pending: dict[int, PendingCall],
        limits: RegionLimits | None = None,
        total: Total | None = None,
    ) -> None:
        self.type = type_name
        self.limits = limits or RegionLimits()
        self.pending = pending
        self.routes: dict[ShardId, Route] = {}
        self.out: list[RegionEffect] = []
        self.term: Term = 0
        self.calls = 0
        self.bytes = 0
        self.total = total or Total()
        self._shard_bytes = int(SHARE * self.limits.max_bytes)
        self._shard_calls = math.ceil(SHARE * self.limits.max_calls)
        self._unsettled: set[ShardId] = set()
        """Shards whose home is wanted, with or without a message for them; and some that are
        settled again."""
        self._astray: dict[int, ShardId] = {}
        "By request: the present shard of a call that is outstanding at its former one."
        self._shards_of: dict[Incarnation, set[ShardId]] = {}
        "Shards that were ever said to live at each home: to be looked at when it is gone."

    @property
    def waiting(self) -> int:
        """The number of calls that wait here for a home; the others are under way."""
        return sum(len(self.routes[shard].waiting) for shard in self._unsettled)

    # -- From the callers --------------------------------------------------------------------------

    def submit(self, pending: PendingCall, now: float) -> bool:
        """Take a new call. True: send it at once (the fast path leaves nothing in `out`)."""
        limits, route, total = self.limits, self.routes.get(pending.shard), self.total
        pending.size = size = len(pending.call.args) + OVERHEAD_BYTES
        if (
            self.calls >= limits.max_calls
            or self.bytes + size > limits.max_bytes
            or total.bytes + size > limits.max_total_bytes
        ):
            self.out.append(Refuse(pending, "buffer_full"))
            return False
        if route is None:
            route = self.routes[pending.shard] = Route(pending.shard)
        elif (
            route.size + size > self._shard_bytes
            or route.outstanding + len(route.waiting) >= self._shard_calls
        ):
            self.out.append(Refuse(pending, "buffer_full"))
            return False
        self.pending[pending.request] = pending
        self.calls += 1
        self.bytes += size
        total.bytes += size
        route.size += size
        if route.state is OPEN and not route.waiting:
            pending.home = route.home
            pending.epoch = route.epoch
            route.outstanding += 1
            return True
        route.waiting[pending.request] = pending
        self._unsettled.add(pending.shard)
        if self.limits.max_waiting is not None and len(route.waiting) > self.limits.max_waiting:
            self._refuse(route.next(), "buffer_full")
        if route.home is None and route.asked_at < 0:
            self._ask(route, now)
        return False

    def find(self, shards: Iterable[ShardId], now: float) -> None:
        """Learn where these shards live, and have homeless ones placed, without a message."""
        for shard in shards:
            route = self.routes.setdefault(shard, Route(shard))
            if route.home is None:
                route.sought = True
                self._unsettled.add(shard)
                self._ask(route, now)

    # -- From the homes ----------------------------------------------------------------------------

    def resolved(self, pending: PendingCall, now: float) -> None:
        """Take in that the home has resolved a call, which is no longer in `pending`."""
        route, size = self.routes[pending.shard], pending.size
        self.calls -= 1
        self.bytes -= size
        self.total.bytes -= size
        route.size -= size
        route.bounces = 0
        route.outstanding -= 1
        if not route.outstanding and (route.next_home is not None or route.waiting):
            self._advance(route, now)
        if self._astray:
            self._found([pending], now)

    def handed_back(self, home: Incarnation, epoch: Epoch, calls: Sequence[PendingCall], now: float) -> None:
        """Take back calls that the former home did not handle."""
        returned: dict[ShardId, list[PendingCall]] = {}
        for pending in calls:
            if pending.home == home:
                returned.setdefault(pending.shard, []).append(pending)
        for shard, group in returned.items():
            route = self.routes[shard]
            if route.home == home and route.epoch == group[0].epoch:
                route.home = None
                route.bounces += 1
                if route.next_home is None:
                    route.become(RouteState.UNKNOWN)
            route.outstanding -= len(group)
            self._put_back(route, self._follow(group))
            self._advance(route, now)
            self._found(group, now)

    def abandon(self, pending: PendingCall, now: float) -> None:
        """Take in that the caller waits no longer.

        A call that waits here is forgotten; else its home resolves it.
        """
        pending.told = True
        if pending.home is None:
            route = self.routes[pending.shard]
            route.waiting.pop(pending.request, None)
            self._forget(pending)

    # -- From the coordinator ----------------------------------------------------------------------

    def home_told(self, shard: ShardId, home: Incarnation, epoch: Epoch, now: float, era: int = 0) -> None:
        """Take in a shard's home, from ShardHome or a row of the store."""
        route = self.routes.get(shard)
        if route is None or (era, epoch) < max((route.era, route.epoch), (route.next_era, route.next_epoch)):
            return
        self._shards_of.setdefault(home, set()).add(shard)
        route.sought = False
        if route.wanted_at >= 0:
            self.total.home_seconds.add(now - route.wanted_at)
            route.wanted_at = -1.0
        # A home that stays in a new era, at its epoch, still has its calls in their order. A
        # follower's question may wait there for a minute.
        another = (route.home, route.epoch) != (home, epoch)
        if route.outstanding and (another or route.astray):
            route.next_home, route.next_era, route.next_epoch = home, era, epoch
            route.become(RouteState.DRAINING)
            return
        if (era, epoch) > (route.era, route.epoch):
            route.bounces = 0
        route.home, route.era, route.epoch = home, era, epoch
        route.drop_next()
        route.become(OPEN)
        self._advance(route, now)

    def renumbered(
        self, shard_of: Callable[[EntityId], ShardId], there: Callable[[ShardId], bool], now: float
    ) -> None:
        """Take in other numbers of shards. `shard_of` raises nothing; `there` tells whether a shard
        exists.
        """
        left: set[ShardId] = set()
        # A route that waited for astray calls may have nothing to wait for by the new numbers.
        come: set[ShardId] = set(self._astray.values())
        for shard in self._astray.values():
            self.routes[shard].outstanding -= 1
            self.routes[shard].astray -= 1
        self._astray.clear()
        for pending in self.pending.values():
            if pending.call.type != self.type:
                continue
            shard = shard_of(pending.call.entity)
            if shard == pending.shard:
                continue
            if pending.home is None:
                left.add(pending.shard)
                come.add(shard)
                self._move(pending, shard)
            else:
                self._await_astray(pending, shard)
        for shard in left:
            route = self.routes[shard]
            for request in [each.request for each in route.waiting.values() if each.shard != shard]:
                del route.waiting[request]
        for shard in sorted(come):
            route = self.routes[shard]
            route.sort()
            self._advance(route, now)
        for shard, route in self.routes.items():
            route.sought = route.sought and there(shard)

    def _move(self, pending: PendingCall, shard: ShardId) -> None:
        """Let a call wait at another route, which the caller puts in order and moves on."""
        self.routes[pending.shard].size -= pending.size
        pending.shard = shard
        route = self.routes.setdefault(shard, Route(shard))
        route.size += pending.size
        route.waiting[pending.request] = pending
        self._unsettled.add(shard)

    def _await_astray(self, pending: PendingCall, shard: ShardId) -> None:
        """Let the route of an outstanding call's present shard wait for it."""
        self._astray[pending.request] = shard
        route = self.routes.setdefault(shard, Route(shard))
        route.outstanding += 1
        route.astray += 1
        _wait_for_astray(route)

    def _follow(self, calls: list[PendingCall]) -> list[PendingCall]:
        """Put calls that have come back from former shards to their present ones; return the
        others.
        """
        if not self._astray:
            return calls
        stay = []
        come: set[ShardId] = set()
        for pending in calls:
            if pending.request not in self._astray:
                stay.append(pending)
            elif pending.told:
                self._forget(pending)
            else:
                pending.home = None
                self._move(pending, self._astray[pending.request])
                come.add(pending.shard)
        for shard in come:
            self.routes[shard].sort()
        return stay

    def _found(self, calls: Iterable[PendingCall], now: float) -> None:
        """Take in that these calls are outstanding no longer; let those behind them go on."""
        found = Counter(self._astray.pop(each.request) for each in calls if each.request in self._astray)
        for shard, number in sorted(found.items()):
            route = self.routes[shard]
            route.outstanding -= number
            route.astray -= number
            self._advance(route, now)

    def hand_off_begins(self, shards: Iterable[ShardId], now: float) -> None:
        """Hold messages for these shards until their home is announced again (BeginHandOff)."""
        for shard in shards:
            route = self.routes.get(shard)
            if route is not None and route.home is not None:
                route.become(_HELD[route.state])
                route.asked_at = now

    def left(self, incarnation: Incarnation, now: float) -> None:
        """Send nothing more to a home that ends in order; its outstanding calls come back."""
        self.hand_off_begins(
            [
                shard
                for shard in sorted(self._shards_of.get(incarnation, ()))
                if self.routes[shard].home == incarnation
            ],
            now,
        )

    def wait_behind(self, pending: PendingCall) -> bool:
        """Tell whether calls wait at the route that an outstanding call holds up."""
        return bool(self.routes[self._astray.get(pending.request, pending.shard)].waiting)

    def knows(self, incarnation: Incarnation) -> bool:
        """Tell whether any route has led there."""
        return incarnation in self._shards_of

    def gone(
        self,
        incarnation: Incarnation,
        now: float,
        lost: Iterable[PendingCall] | None = None,
        unsent: Iterable[PendingCall] = (),
    ) -> None:
        """Take in NodeGone: that process commits nothing more and answers nothing more.

        `lost`: the calls of this type that are outstanding there, if they have been looked up; of
        these `unsent` never left this process.
        """
        if lost is None:
            lost = outstanding_at(incarnation, self.pending.values()).get(self.type, ())
        never_left = {each.request for each in unsent}
        by_shard: dict[ShardId, list[PendingCall]] = {}
        for pending in lost:
            by_shard.setdefault(pending.shard, []).append(pending)
        for shard, group in by_shard.items():
            route = self.routes[shard]
            route.outstanding -= len(group)
            self._put_back(route, self._follow(self._of_a_dead_home(group, never_left)))
        for shard in sorted(self._shards_of.pop(incarnation, set()) | by_shard.keys()):
            route = self.routes[shard]
            if route.next_home == incarnation:
                route.drop_next()
                route.become(RouteState.UNKNOWN if route.home is None else _DRAINED[route.state])
                if route.home != incarnation:
                    _wait_for_astray(route)
            if route.home == incarnation:
                route.home = None
                route.become(RouteState.UNKNOWN if route.next_home is None else RouteState.DRAINING)
            self._advance(route, now)
        for group in by_shard.values():
            self._found(group, now)

    def _of_a_dead_home(self, group: list[PendingCall], never_left: set[int]) -> list[PendingCall]:
        """Return those of the calls that go again, and refuse the others."""
        again: list[PendingCall] = []
        later: dict[EntityId, Later] = {}
        for pending in sorted(group, key=lambda each: each.request, reverse=True):
            if pending.request in never_left:
                again.append(pending)
                continue
            behind = later.setdefault(pending.call.entity, Later())
            if self._goes_again(pending, behind):
                again.append(pending)
            elif not pending.safe:
                behind.leaves_no_trace = True
            behind.calls.append(pending.call.command_id or pending.request)
        return again

    def _goes_again(self, pending: PendingCall, behind: Later) -> bool:
        """Tell whether a call may be handled again, though its dead home may have handled it.

        The home may have refused it, have done later ones, and have died with the refusal. Taken
        now, it would take effect behind them. So the next home looks for them in the journal first.
        Of a durable message the row decides, whatever comes behind it.
        """
        pending.deaths += 1
        pending.attempt += 1
        is_message = pending.call.delivery is not None
        may_be_behind = not is_message and (behind.leaves_no_trace or len(behind.calls) > MOST_LATER)
        if may_be_behind or pending.told or not pending.safe or pending.deaths >= MAX_DEATHS:
            # The home of a message's owner counts the deaths.
            reason = "home_died" if is_message else "fate_unknown"
            self._refuse(pending, "poisonous" if pending.deaths >= MAX_DEATHS else reason)
            return False
        if not is_message:
            pending.later = tuple(reversed(behind.calls))
        return True

    def no_home(self, reason: str, now: float, shards: Collection[ShardId] = ()) -> None:
        """Refuse calls that wait for an unknown home: no live node hosts the type (or these
        shards of it).
        """
        routes = (
            [self.routes[each] for each in shards if each in self.routes] if shards else self.routes.values()
        )
        for route in routes:
            if route.state is RouteState.UNKNOWN:
                route.asked_at = route.wanted_at = -1.0
                route.sought = route.sought and reason != "no_such_shard"
                while route.waiting:
                    self._refuse(route.next(), reason)

    def tick(self, now: float) -> None:
        """Ask again for homes that are still not known, and for holds that were not lifted."""
        again = []
        for shard in list(self._unsettled):
            route = self.routes[shard]
            if not (route.waiting or route.sought):
                self._unsettled.discard(shard)
                if route.home is None:
                    route.asked_at = route.wanted_at = -1.0  # the next pending begins the search
                continue
            wants = route.state in (RouteState.UNKNOWN, RouteState.HELD)
            if wants and now - route.asked_at >= self.limits.retry_seconds:
                route.asked_at = now
                again.append(route.shard)
        if again:
            self.out.append(AskHomes(sorted(again), again=True))

    # -- Inside ------------------------------------------------------------------------------------

    def _ask(self, route: Route, now: float) -> None:
        route.asked_at = now
        if route.wanted_at < 0:
            route.wanted_at = now
        last = self.out[-1] if self.out else None
        if isinstance(last, AskHomes) and not last.again:
            last.shards.append(route.shard)
        else:
            self.out.append(AskHomes([route.shard]))

    def _put_back(self, route: Route, calls: list[PendingCall]) -> None:
        for pending in sorted(calls, key=lambda each: each.request, reverse=True):
            pending.home = None
            if pending.told:
                self._forget(pending)
            else:
                route.waiting[pending.request] = pending
                route.waiting.move_to_end(pending.request, last=False)
                self._unsettled.add(route.shard)
        if len(route.waiting) > len(calls):
            route.sort()

    def _advance(self, route: Route, now: float) -> None:
        """Move a route on as far as possible now."""
        if route.outstanding:
            if route.state is OPEN and route.waiting:
                self._forward_all(route)
            return
        if route.next_home is not None:
            route.home, route.era, route.epoch = route.next_home, route.next_era, route.next_epoch
            route.drop_next()
            route.bounces = 0
            route.become(_DRAINED[route.state])
        if route.state is RouteState.UNKNOWN:
            if route.waiting and route.bounces <= 1:
                self._ask(route, now)
            elif route.waiting and route.asked_at < 0:
                # One home has handed back twice: `tick` asks after a pause, or the two would go in
                # circles.
                route.asked_at = now
        elif route.state is OPEN:
            self._forward_all(route)

    def _forward_all(self, route: Route) -> None:
        route.asked_at = -1.0
        while route.waiting:
            pending = route.next()
            pending.home = route.home
            pending.epoch = route.epoch
            route.outstanding += 1
            self.out.append(Forward(pending))

    def _refuse(self, pending: PendingCall, reason: str) -> None:
        if pending.attempt > 1 and reason not in ("poisonous", "home_died"):
            # It had reached a home that died, and may have taken effect there, whatever the reason
            # now.
            reason = "fate_unknown"
        self._forget(pending)
        self.out.append(Refuse(pending, reason))

    def _forget(self, pending: PendingCall) -> None:
        self.pending.pop(pending.request, None)
        size = pending.size
        self.calls -= 1
        self.bytes -= size
        self.total.bytes -= size
        self.routes[pending.shard].size -= size
