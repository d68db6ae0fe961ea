"""The lease: whether this node may handle messages now (promise 2).

The lifeline feeds it the observations of its two sessions. The lease answers with one number,
`valid_until`, on the node's own clock, which counts suspended time. A node handles a batch, and
lets answers out, only while `now < valid_until`.

::

     both locks held, both pings answered
    NEW ---------------------------------> VALID <--------------------.
                                             |                        | resume(generation):
              the limit passed, or           |                        | the rows were compared
              a session is lost              v                        |
                                         SUSPENDED ------------> RETURNING
                                             ^   a ping answered      |
                                             |   with the lock held   |
                                             `------------------------'
                                               lost or lapsed again

    every state -- drop() --> DROPPED: the node's row is gone, or it stops; nothing leads back

* A lost session puts the other one in doubt too: that one counts again when it answers a ping sent
  after the loss. A coordinator that finds both locks free moves our shards at once, and may do so
  before we hear of the second loss.
* A ping counts from the moment it was *sent*: the server may have answered at once and the answer
  been late.
* Only a session that holds its lock counts, and only in one lineage: the newest timeline that
  either session sees. If the sessions lead to different systems, the system where a lock was taken
  last counts. When that lineage changes, the lease lapses, because the node's memory was read in
  the former one (`after_return`).
* One lapse is one *generation*. Rows that were read for an older generation resume nothing: the
  lifeline was gone again since. While the lease is not VALID, `valid_until` is NEVER, however fresh
  the pings are.
* Own limit < TTL: when the server frees the locks of a frozen node, and others act on it, the node
  has been invalid by its own clock for TTL - own limit, less the difference of the two clocks.
* In another lineage the lease comes back no earlier than a TTL after that lineage was first seen. A
  node that has not noticed may be valid for that time in the former one, as the home of shards
  whose rows are lost: the rows that we could compare do not name it.
* A session that the server has ended renews nothing, whether this node has heard of that or not. So
  a node that hears of neither end handles messages for its own limit at most, however soon the
  others act on it: `longest_overlap`.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from sharding_app.protocol.ids import Epoch, Incarnation, ShardKey
from sharding_app.protocol.records import Lineage, Server, ShardRow

NEVER = float("-inf")

LeaseState = Literal["new", "valid", "suspended", "returning", "dropped"]
LeaseChange = Literal["valid", "suspended", "back", "settled"]
"""'valid': for the first time. 'back': compare the rows, then call `resume`. 'settled': both locks
are held on one server; write that to the node's row, since from then on the loss of both means
death at once."""


def longest_overlap(own_limit_seconds: float, clock_drift: float) -> float:
    """Return how long, by any other clock, a node may handle messages after the server has freed
    its second lock.

    The last renewal of its lease was a ping that the server answered, so it was sent before that
    moment.
    """
    return own_limit_seconds / (1 - clock_drift)


class _Session:
    __slots__ = ("held", "in_flight", "locked", "server", "until")

    def __init__(self) -> None:
        self.held = False
        self.locked = 0
        "The order of its lock among all that both sessions have taken."
        self.until = NEVER
        self.server: Server | None = None
        "The one that has answered a ping while the lock was held; None without a lock."
        self.in_flight: float | None = None

    def forget(self) -> None:
        self.held = False
        self.until = NEVER
        self.server = None
        self.in_flight = None


class Lease:
    __slots__ = (
        "_before", "_locked", "_own_limit", "_seen", "_seen_at", "_sessions", "_settled", "_ttl", "generation", "lineage",
        "state", "valid_until",
    )  # fmt: skip

    def __init__(self, own_limit_seconds: float, ttl_seconds: float, sessions: int = 2) -> None:
        self._own_limit = own_limit_seconds
        self._ttl = ttl_seconds
        self._sessions = tuple(_Session() for _ in range(sessions))
        self._settled: Server | None = None
        self._before = NEVER
        self._locked = 0
        self._seen: Lineage | None = None
        "The lineage that counted when a ping was last answered."
        self._seen_at = NEVER
        "When `_seen` was first seen."
        self.lineage: Lineage | None = None
        "The lineage in which the lease is valid, or will be when the rows are compared."
        self.state: LeaseState = "new"
        self.generation = 0
        "The number of lapses."
        self.valid_until = NEVER
        "Read by the main loop without a lock: the only attribute that another thread may read."

    @property
    def suspended(self) -> bool:
        return self.state in ("suspended", "returning")

    @property
    def settled(self) -> Server | None:
        """The server on which all sessions hold their locks, or None."""
        return self._settled

    def is_valid(self, now: float) -> bool:
        return now < self.valid_until

    # -- observations of the sessions --------------------------------------------------------------

    def locked(self, session: int) -> None:
        """Take in that the session holds its lock. It counts from the next ping on."""
        self._forget(session)
        self._locked += 1
        self._sessions[session].held = True
        self._sessions[session].locked = self._locked

    def ping_sent(self, session: int, now: float) -> None:
        self._sessions[session].in_flight = now

    def ping_answered(self, session: int, sent_at: float, server: Server, now: float) -> list[LeaseChange]:
        """Take in an answer.

        It changes nothing if it belongs to no ping under way or its session has no lock.
        """
        one = self._sessions[session]
        if self.state == "dropped" or one.in_flight != sent_at or not one.held:
            return []
        changes = self.tick(now)
        one.in_flight = None
        one.until = max(one.until, sent_at + self._own_limit)
        one.server = server
        fresh_until = self._fresh_until()
        lineage = self._lineage()
        if lineage != self._seen:
            self._seen, self._seen_at = lineage, now
        if self.state in ("valid", "returning") and lineage not in (None, self.lineage):
            changes += self._suspend()
        if self.state == "valid":
            self._before, self.valid_until = self.valid_until, fresh_until
        elif self.state == "suspended" and now < fresh_until and self._former_is_over(now):
            self.state = "returning"
            self.lineage = lineage
            changes.append("back")
        return changes + self._settle(now)

    def confirm(self, now: float) -> list[LeaseChange]:
        """Look again with a new reading of the clock, after `ping_answered` has made the new
        `valid_until` visible.

        The process may have been stopped between the first reading and the renewal, and another
        thread may have seen the lease lapse in between. This call makes sure that a lapse that was
        seen is always followed by 'suspended', and later 'back'.
        """
        if self.state == "valid" and now >= self._before:
            return self._suspend()
        return []

    def session_lost(self, session: int, now: float) -> list[LeaseChange]:
        """Take in that the session is gone, or is about to be closed: call it *before* anything
        frees the lock.

        Ping the other one at once: until it answers, the lease is suspended.
        """
        for other in self._sessions:
            other.until = NEVER
            other.in_flight = None
        self._forget(session)
        return self.tick(now)

    def tick(self, now: float) -> list[LeaseChange]:
        """Suspend the lease if its limit has passed."""
        if (self.state == "valid" and now >= self.valid_until) or (
            self.state == "returning" and now >= self._fresh_until()
        ):
            return self._suspend()
        return []

    # -- decisions of the shell --------------------------------------------------------------------

    def resume(self, generation: int, now: float) -> bool:
        """Resume after the rows were compared, if the lifeline has not been lost again since."""
        if self.state != "returning" or generation != self.generation or now >= self._fresh_until():
            return False
        self.state = "valid"
        self._before = self.valid_until = self._fresh_until()
        return True

    def drop(self) -> None:
        self.state = "dropped"
        self.valid_until = NEVER
        self._settled = None

    # -- inside ------------------------------------------------------------------------------------

    def _forget(self, session: int) -> None:
        self._sessions[session].forget()
        self._settled = None
        if self.state == "valid":
            self.valid_until = self._fresh_until()

    def _lineage(self) -> Lineage | None:
        """Return the lineage that counts now."""
        known = [(one.locked, one.server.lineage) for one in self._sessions if one.server is not None]
        if not known:
            return None
        system = max(known, key=lambda each: each[0])[1].system
        return Lineage(system, max(each.timeline for _, each in known if each.system == system))

    def _former_is_over(self, now: float) -> bool:
        """Whether no lease of a former lineage can be valid anywhere."""
        return self._seen == self.lineage or now >= self._seen_at + self._ttl

    def _fresh_until(self) -> float:
        lineage = self._lineage()
        return max(
            (one.until for one in self._sessions if one.server is not None and one.server.lineage == lineage),
            default=NEVER,
        )

    def _settle(self, now: float) -> list[LeaseChange]:
        first = self._sessions[0].server
        if first is None or any(one.server != first or now >= one.until for one in self._sessions):
            return []
        if self.state == "new":
            self.state = "valid"
            self.lineage = first.lineage
            self._before = self.valid_until = self._fresh_until()
            self._settled = first
            return ["valid", "settled"]
        if self._settled == first:
            return []
        self._settled = first
        return ["settled"]

    def _suspend(self) -> list[LeaseChange]:
        again = self.state == "returning"
        self.state = "suspended"
        self.valid_until = NEVER
        self.generation += 1
        return [] if again else ["suspended"]


Return = Literal["go_on", "read_again", "begin_anew"]


def after_return(lived: Lineage | None, now: Lineage) -> Return:
    """Return how a node whose lease comes back treats its objects.

    In the same lineage all acknowledged events are still there, and the objects go on. On another
    timeline some may be missing: a standby that was behind was promoted, or a backup restored.
    Memory would be ahead of the journal, and the next event would leave a gap. So the node gives up
    the shards that have a journal; each gets a new epoch, and its objects are read again. Another
    system is another cluster, with an id, channels and locks of its own: the incarnation ends, and
    the next one joins that cluster.
    """
    if lived is None or lived == now:
        return "go_on"
    return "read_again" if lived.system == now.system else "begin_anew"


def resume_check(
    rows: Sequence[ShardRow], mine: Mapping[ShardKey, Epoch], incarnation: Incarnation
) -> tuple[list[ShardKey], list[ShardKey]]:
    """Return which shards a node keeps after it was suspended, and which ones it drops.

    A shard is kept if its row has the same epoch and home. A greater epoch means that the shard may
    have lived elsewhere in between, even if this node is its home again: memory may be behind the
    journal. A shard without a row is dropped.
    """
    found = {(row.type, row.shard): row for row in rows}
    keep: list[ShardKey] = []
    drop: list[ShardKey] = []
    for key, epoch in mine.items():
        row = found.get(key)
        equal = row is not None and row.home == incarnation and row.epoch == epoch
        (keep if equal else drop).append(key)
    return keep, drop
