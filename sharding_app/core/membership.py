"""Who is dead? Judged by the coordinator from the members' rows and the server's lock table (promises 1 and 13).

Each member holds one lock in each of two sessions. What a reading shows, and what it means:

====================================  =================================================================================
both held                             alive
one held                              alive; *suspect* for a TTL from first sight, so that nothing is moved *to* it
none, on the server run of its row    dead, at once, unless one lock alone was seen held for longer than a ping interval:
                                      then suspect for a TTL from the first reading of none
none, on another run (restart,        suspect: freed locks say nothing of the process. It has the full TTL from first
failover), or never settled           sight to come back; by then its own limit has passed, and it is dead
====================================  =================================================================================

Why the third line holds. Call the moments at which the server freed the two locks `a <= b`.

* The process has ended: its kernel closed both sessions, `b - a` is a few milliseconds, and nothing runs any more.
* The process is frozen, or cut off both ways: the server ends each session a TTL after its last ping. Both sessions ping
  once in an interval until the same moment, so `b - a` is at most one ping interval. At `a` the last ping is older than
  the TTL less one interval, the process's own limit has passed, and it handles nothing.
* The process lives, and lost its sessions by two faults. It listens on both, and with the first loss that it hears of it
  suspends itself until the other one answers; one that goes on with one session says so in its row, which then names no
  server. What remains is a process that hears of neither, since something on the way ended both towards the server alone.
  It may renew its lease until `b` and be valid until its own limit after it, so it gets a TTL from the first reading
  after `b`.

The last case cannot be told from the second while `b - a` is less than an interval, and there the second is assumed: two may
live for `core.lease.longest_overlap`, as docs/survival.md says. Beyond that it can, and however often somebody reads: a lock that was seen held
alone in two readings was held alone between them, so `b - a` is at least the time between the first and the last of these
readings. Fewer readings show less of it, and never more. So a silent node is found dead with the first reading after its
second lock went, at whatever distance readings are.

The TTL starts anew when the server changes again, or when a lock was seen held in between: the member may have renewed
its lease there.

A *deaf* member says in its row that it does not hear itself through the channel layer. It counts as deaf only while
another one that is alive and up says that it hears: when nobody hears, the layer is down and nothing moves.
"""

from collections import Counter
from collections.abc import Collection, Sequence

import msgspec

from sharding_app.core.ids import Incarnation
from sharding_app.core.records import Member, Server

LOCKS = 2


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """All in the order of the reading: oldest first. `alive`, `suspect` and `dead` share no member."""

    alive: tuple[Incarnation, ...] = ()
    suspect: tuple[Incarnation, ...] = ()
    "Alive or soon dead: they keep their shards and get no new ones."
    dead: tuple[Incarnation, ...] = ()
    deaf: tuple[Incarnation, ...] = ()
    "Of those that are not dead."
    next_look: float = float("inf")
    "Read again by then, even if nothing else asks for it."


class _Doubt:
    """What readings have shown since the member was last seen with both locks."""

    __slots__ = ("alone_since", "none", "seen_at", "server", "since")

    def __init__(self, since: float, server: Server) -> None:
        self.since = since
        "From here on it has a TTL."
        self.server = server
        self.none = False
        "The last reading showed no lock."
        self.alone_since: float | None = None
        "The first reading with one lock."
        self.seen_at: float | None = None
        "The last one."


class Membership:
    """Readings in, verdicts out. `me` is the judge: one that can read is not dead."""

    __slots__ = ("_doubts", "_look_again", "_me", "_ping_interval", "_ttl")

    def __init__(
        self,
        ttl_seconds: float,
        me: Incarnation = "",
        look_again_seconds: float = 0.25,
        ping_interval_seconds: float = 0.5,
    ) -> None:
        self._ttl = ttl_seconds
        self._me = me
        self._look_again = look_again_seconds
        self._ping_interval = ping_interval_seconds
        self._doubts: dict[Incarnation, _Doubt] = {}

    def judge(self, now: float, server: Server, members: Sequence[Member]) -> Verdict:
        """Judge one reading. `now` is the judge's own clock when the reading was there, not when it was asked for: who was
        first seen without locks may have renewed its lease in between. A verdict on a reading that came late is refused
        where the dead are buried, if the member has its locks again."""
        alive: list[Incarnation] = []
        suspect: list[Incarnation] = []
        dead: list[Incarnation] = []
        deadlines: list[float] = []
        doubts: dict[Incarnation, _Doubt] = {}
        for member in members:
            who = member.incarnation
            if member.locks >= LOCKS or who == self._me:
                alive.append(who)
                continue
            doubt = self._doubt(now, server, member)
            if not member.locks and member.server == server and self._together(doubt):
                dead.append(who)
                continue
            doubts[who] = doubt
            if now - doubt.since < self._ttl:
                suspect.append(who)
                deadlines.append(doubt.since + self._ttl)
            elif member.locks:
                alive.append(who)
            else:
                dead.append(who)
        self._doubts = doubts
        next_look = min(min(deadlines), now + self._look_again) if deadlines else float("inf")
        living = set(alive) | set(suspect)
        return Verdict(
            alive=tuple(alive),
            suspect=tuple(suspect),
            dead=tuple(dead),
            deaf=deaf_members([member for member in members if member.incarnation in living]),
            next_look=next_look,
        )

    def _together(self, doubt: _Doubt) -> bool:
        """Tell whether both locks may have gone as they do when a process ends, or has fallen silent."""
        if doubt.alone_since is None or doubt.seen_at is None:
            return True
        return doubt.seen_at - doubt.alone_since <= self._ping_interval

    def _doubt(self, now: float, server: Server, member: Member) -> _Doubt:
        doubt = self._doubts.get(member.incarnation)
        if doubt is None or doubt.server != server:
            doubt = _Doubt(now, server)
        if member.locks:
            if doubt.alone_since is None:
                doubt.alone_since = now
            doubt.seen_at = now
        elif doubt.seen_at is not None and not doubt.none:
            doubt.since = now
        doubt.none = not member.locks
        return doubt


def deaf_members(living: Collection[Member]) -> tuple[Incarnation, ...]:
    """Return those who say that they are deaf, if somebody who is up says that the layer works."""
    if not any(member.state == "up" and not member.deaf for member in living):
        return ()
    return tuple(member.incarnation for member in living if member.deaf)


def member_names(members: Sequence[Member]) -> dict[Incarnation, str]:
    """Return what nodes are called; two of one name are told apart by their incarnations."""
    count = Counter(each.name for each in members)
    return {
        each.incarnation: each.name if count[each.name] == 1 else f"{each.name}({each.incarnation[:8]})"
        for each in members
    }
