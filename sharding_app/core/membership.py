"""Who is dead? Judged by the coordinator from the members' rows and the server's lock table (promises 1 and 13).

Each member holds one lock in each of two sessions. What a reading shows, and what it means:

====================================  =================================================================================
both held                             alive
one held                              alive; *suspect* for a TTL from first sight, so that nothing is moved *to* it
none, on the server run of its row    dead, at once: two sessions do not end together while their process lives, or it
                                      hears of both and is silent before we have read this (one that goes on with one
                                      says so in its row, which then names no server). If one was seen missing
                                      for a while before, they did not end together: suspect
none, on another run (restart,        suspect: freed locks say nothing of the process. It has the full TTL from first
failover), or never settled           sight to come back; by then its own limit has passed, and it is dead
====================================  =================================================================================

The TTL starts anew when the server changes again, or when a lock was seen held in between: the member may have renewed
its lease there.

A *deaf* member says in its row that it does not hear itself through the channel layer. It counts as deaf only while
another one that is alive and up says that it hears: when nobody hears, the layer is down and nothing moves.
"""

from collections.abc import Collection, Sequence

import msgspec

from sharding_app.core.ids import Incarnation
from sharding_app.core.records import Member, Server

LOCKS = 2
TOGETHER_SECONDS = 0.1
"""A server needs a moment to see the end of both connections of a process that was killed."""


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
    __slots__ = ("locks", "server", "since")

    def __init__(self, since: float, server: Server, locks: int) -> None:
        self.since = since
        self.server = server
        self.locks = locks


class Membership:
    """Readings in, verdicts out. `me` is the judge: one that can read is not dead."""

    __slots__ = ("_doubts", "_look_again", "_me", "_ttl")

    def __init__(self, ttl_seconds: float, me: Incarnation = "", look_again_seconds: float = 0.25) -> None:
        self._ttl = ttl_seconds
        self._me = me
        self._look_again = look_again_seconds
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
            if member.locks == 0 and member.server == server and self._together(who, now):
                dead.append(who)
                continue
            doubt = self._doubt(now, server, member)
            doubts[who] = doubt
            waited = now - doubt.since >= self._ttl
            if not waited:
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

    def _together(self, who: Incarnation, now: float) -> bool:
        """Tell whether both locks may have gone at once, as they do when a process ends."""
        known = self._doubts.get(who)
        return known is None or now - known.since <= TOGETHER_SECONDS

    def _doubt(self, now: float, server: Server, member: Member) -> _Doubt:
        known = self._doubts.get(member.incarnation)
        if known is None or known.server != server or (known.locks and not member.locks):
            return _Doubt(now, server, member.locks)
        if member.locks and not known.locks:
            known.locks = member.locks
        return known


def deaf_members(living: Collection[Member]) -> tuple[Incarnation, ...]:
    """Return those who say that they are deaf, if somebody who is up says that the layer works."""
    if not any(member.state == "up" and not member.deaf for member in living):
        return ()
    return tuple(member.incarnation for member in living if member.deaf)
