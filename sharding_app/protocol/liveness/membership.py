"""Membership: the coordinator judges which members are dead (promises 1 and 13).

It reads the members' rows and the server's lock table. Each member holds one lock in each of two
sessions. A reading means:

===============================  ==================================================================
both held                        alive
one held                         alive; *suspect* for a TTL from first sight, so that no shard is
                                 moved *to* it
none, on the server run of its   dead now, unless one lock alone was seen held for longer than a
row                              ping interval: then suspect for a TTL from the first reading of
                                 none
none, on another run (restart,   suspect: freed locks say nothing about the process. It has the
failover), or never settled      full TTL from first sight to come back; by then its own limit has
                                 passed, and it is dead
===============================  ==================================================================

Why the third row holds. Call the moments at which the server freed the two locks `a <= b`.

* The process has ended: its kernel closed both sessions, `b - a` is a few milliseconds, and nothing
  runs any more.
* The process is frozen, or cut off both ways: the server ends each session a TTL after its last
  ping. Both sessions ping once in an interval until the same moment, so `b - a` is at most one ping
  interval. At `a` the last ping is older than the TTL less one interval, the process's own limit
  has passed, and it handles nothing.
* The process lives, and lost its sessions by two faults. It listens on both. With the first loss
  that it hears of it suspends itself until the other session answers. Before it continues on one
  session its row says so, and names no server. One case remains, a process that hears of neither
  loss, since something on the way ended both sessions towards the server alone. It may renew its
  lease until `b` and be valid until its own limit after it, so it gets a TTL from the first reading
  after `b`.

While `b - a` is less than an interval, the last case cannot be told from the second, and the second
is assumed: two instances may live for `protocol.liveness.node_lease.longest_overlap`, as
docs/survival.md says. Beyond an interval it can be told, however often the coordinator reads. A
lock that two readings showed held alone was held alone between them, so `b - a` is at least the
time between the first and the last of these readings. Fewer readings show less of it, and never
more. So a silent node is found dead with the first reading after its second lock went, however far
apart the readings are.

The TTL starts again when the server changes again, or when a lock was seen held in between: the
member may have renewed its lease there.

A *deaf* member says in its row that it does not hear itself through the channel layer. It counts as
deaf only while another member that is alive and up says that it hears: when none hears, the layer
is down and nothing moves.
"""

from collections import Counter
from collections.abc import Collection, Sequence

import msgspec

from sharding_app.protocol.ids import Incarnation
from sharding_app.protocol.records import Member, Server

LOCKS = 2


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The judgement of one reading, in its order, oldest first.

    `alive`, `suspect` and `dead` share no member.
    """

    alive: tuple[Incarnation, ...] = ()
    suspect: tuple[Incarnation, ...] = ()
    "Alive or soon dead: they keep their shards and get no new ones."
    dead: tuple[Incarnation, ...] = ()
    deaf: tuple[Incarnation, ...] = ()
    "Deaf members among those that are not dead."
    next_look: float = float("inf")
    "Read again by then, even if nothing else asks for a reading."


class _Doubt:
    """Readings of a member since it was last seen with both locks."""

    __slots__ = ("alone_since", "none", "seen_at", "server", "since")

    def __init__(self, since: float, server: Server) -> None:
        self.since = since
        "The member has a TTL from here on."
        self.server = server
        self.none = False
        "The last reading showed no lock."
        self.alone_since: float | None = None
        "The first reading with one lock."
        self.seen_at: float | None = None
        "The last reading with one lock."


class Membership:
    """Turns readings into verdicts. `me` is the judge: a process that can read is not dead."""

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
        """Judge one reading.

        `now` is the judge's own clock when the reading arrived, not when it was requested: a member
        that was first seen without locks may have renewed its lease in between. A verdict on a late
        reading does no harm: the burial is refused if the member has its locks again.
        """
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
        """Tell whether both locks may have gone together, by the end or the silence of the
        process.
        """
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
    """Return the members that say they are deaf, if one that is up says that the layer works."""
    if not any(member.state == "up" and not member.deaf for member in living):
        return ()
    return tuple(member.incarnation for member in living if member.deaf)


def member_names(members: Sequence[Member]) -> dict[Incarnation, str]:
    """Return the nodes' names; nodes of one name are told apart by their incarnations."""
    count = Counter(each.name for each in members)
    return {
        each.incarnation: each.name if count[each.name] == 1 else f"{each.name}({each.incarnation[:8]})"
        for each in members
    }
