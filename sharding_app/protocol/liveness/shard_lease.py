"""Leases that shards and singletons need to run, besides their epochs: when to ask for, renew and
give back each.

    One name

    (none) ──want──> waiting ──due──> asking ──granted──> held ──unwant──> releasing ──> (none)
                        ^                │                  │ not renewed, or over by our own clock
                        └──refused, ─────┘                  v
                           failed: later                   lost ──unwant (user ended)──> releasing

Contract: `Granted` is emitted once. From then on `holds` is true until `Lost` is emitted or
`unwant` is called. A lease whose time is over by our own clock is lost, whatever its server says:
the time counts from the request, and a tenth is left for clocks that differ. A lost lease is given
back only after its user has stopped. After a request without an answer we may hold the lease
without knowing: it is given back too if it is not wanted any more.

(The node's own lease on life is another thing: `protocol.liveness.node_lease`.)
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Literal

import msgspec

MIN_RENEW_SECONDS = 5.0
OWN_PART = 0.9
"""The part of a lease's time that counts by our own clock: rates may differ by less than a
tenth."""


class LeaseTerms(msgspec.Struct, frozen=True):
    """How long leases last, and how often they are asked for and renewed."""

    ttl_seconds: float = 120.0
    "After this time without a renewal another owner may take it."
    renew_seconds: float | None = None
    "Time between renewals; None: a tenth of `ttl_seconds`, at least 5 seconds."
    retry_seconds: float = 5.0
    "Pause after a refusal or a failure before it is asked for again."
    answer_seconds: float = 5.0
    "Time limit for an answer."

    def __post_init__(self) -> None:
        if self.ttl_seconds <= 0 or self.retry_seconds <= 0 or self.answer_seconds <= 0:
            raise ValueError("the times of a lease are above 0")
        if not 0 < self.renew_every < self.ttl_seconds / 2:
            raise ValueError(
                f"a lease of {self.ttl_seconds:g} s is renewed at least twice in that time, not every "
                f"{self.renew_every:g} s"
            )

    @property
    def renew_every(self) -> float:
        if self.renew_seconds is not None:
            return self.renew_seconds
        return max(self.ttl_seconds / 10, MIN_RENEW_SECONDS)


class Acquire(msgspec.Struct, frozen=True):
    names: list[str]


class Renew(msgspec.Struct, frozen=True):
    names: list[str]


class Release(msgspec.Struct, frozen=True):
    names: list[str]


class Granted(msgspec.Struct, frozen=True):
    """It is held: its user may start."""

    name: str


class Refused(msgspec.Struct, frozen=True):
    """Another owner has it, for the first time since it was wanted. It is asked for again."""

    name: str


class Lost(msgspec.Struct, frozen=True):
    """Its user must stop, and then call `unwant`."""

    name: str


LeaseEffect = Acquire | Renew | Release | Granted | Refused | Lost


class _Lease:
    __slots__ = ("busy", "doubtful", "due", "refused", "state", "valid_until", "wanted")

    def __init__(self, now: float) -> None:
        self.state: Literal["waiting", "asking", "held", "lost", "releasing"] = "waiting"
        self.wanted = True
        self.busy = False
        "A renewal or a release is under way."
        self.doubtful = False
        "A request had no answer: the lease may be ours."
        self.refused = False
        self.due = now
        self.valid_until = float("-inf")


class ShardLeases:
    def __init__(self, terms: LeaseTerms) -> None:
        self.terms = terms
        self.out: list[LeaseEffect] = []
        self._leases: dict[str, _Lease] = {}

    def __len__(self) -> int:
        """Return how many are held, asked for or not given back yet."""
        return len(self._leases)

    def holds(self, name: str, now: float) -> bool:
        lease = self._leases.get(name)
        return lease is not None and lease.wanted and lease.state == "held" and now < lease.valid_until

    def has_lost(self, name: str, now: float) -> bool:
        """Tell whether its time is over, or it was taken, and its user has not stopped yet."""
        lease = self._leases.get(name)
        return lease is not None and lease.state in ("held", "lost") and not self.holds(name, now)

    @property
    def next_due(self) -> float:
        """When `tick` has something to do; infinity: never."""
        due = float("inf")
        for lease in self._leases.values():
            if lease.state == "held":
                due = min(due, lease.valid_until if lease.busy else min(lease.due, lease.valid_until))
            elif lease.state == "waiting" or (lease.state == "releasing" and not lease.busy):
                due = min(due, lease.due)
        return due

    # -- Calls of the users ------------------------------------------------------------------------

    def want(self, name: str, now: float) -> None:
        """Want this lease. Repeating it is harmless."""
        lease = self._leases.get(name)
        if lease is None:
            self._leases[name] = _Lease(now)
        elif not lease.wanted:
            lease.wanted = True
            lease.refused = False

    def unwant(self, name: str, now: float) -> None:
        """Give a lease up: its user has stopped, or will not start."""
        lease = self._leases.get(name)
        if lease is None:
            return
        lease.wanted = False
        if lease.state == "waiting" and not lease.doubtful:
            del self._leases[name]
        elif lease.state in ("waiting", "held", "lost"):
            self._give_back(lease, now)

    # -- Answers of the leases' server -------------------------------------------------------------

    def answered(self, asked: Iterable[str], granted: Collection[str], sent_at: float, now: float) -> None:
        """Take in the answer to `Acquire`."""
        for name in asked:
            lease = self._leases.get(name)
            if lease is None or lease.state != "asking":
                continue
            lease.doubtful = False
            if name not in granted:
                self._refused(name, lease, now)
            elif not lease.wanted:
                self._give_back(lease, now)
            else:
                lease.state = "held"
                lease.busy = False
                self._extend(lease, sent_at)
                self.out.append(Granted(name))

    def unanswered(self, asked: Iterable[str], now: float) -> None:
        """Take in that `Acquire` has failed: whether it took effect is not known."""
        for name in asked:
            lease = self._leases.get(name)
            if lease is None or lease.state != "asking":
                continue
            lease.doubtful = True
            if lease.wanted:
                lease.state = "waiting"
                lease.due = now + self.terms.retry_seconds
            else:
                self._give_back(lease, now)

    def renewed(self, asked: Iterable[str], kept: Collection[str], sent_at: float) -> None:
        """Take in the answer to `Renew`: leases not kept are lost."""
        for name in asked:
            lease = self._leases.get(name)
            if lease is None or lease.state != "held":
                continue
            lease.busy = False
            if name in kept:
                self._extend(lease, sent_at)
            else:
                self._lose(name, lease)

    def not_renewed(self, asked: Iterable[str], now: float) -> None:
        """Take in that `Renew` has failed: it is tried again while the lease is valid."""
        for name in asked:
            lease = self._leases.get(name)
            if lease is not None and lease.state == "held":
                lease.busy = False
                lease.due = now + min(self.terms.retry_seconds, self.terms.renew_every / 2)

    def released(self, asked: Iterable[str], now: float) -> None:
        for name in asked:
            lease = self._leases.get(name)
            if lease is not None and lease.state == "releasing":
                self._given_back(name, lease, now)

    def not_released(self, asked: Iterable[str], now: float) -> None:
        """Take in that `Release` has failed: it is tried again, for as long as no answer comes. The
        lease may be prolonged with others of the node.
        """
        for name in asked:
            lease = self._leases.get(name)
            if lease is None or lease.state != "releasing":
                continue
            if lease.wanted:
                self._given_back(name, lease, now)
            else:
                lease.busy = False
                lease.due = now + self.terms.retry_seconds

    def tick(self, now: float) -> None:
        acquire: list[str] = []
        renew: list[str] = []
        release: list[str] = []
        for name, lease in self._leases.items():
            if lease.state == "held" and now >= lease.valid_until:
                self._lose(name, lease)
            elif lease.due > now or lease.busy:
                continue
            elif lease.state == "waiting":
                lease.state = "asking"
                acquire.append(name)
            elif lease.state == "held":
                lease.busy = True
                renew.append(name)
            elif lease.state == "releasing":
                lease.busy = True
                release.append(name)
        self._say(Release, release)
        self._say(Renew, renew)
        self._say(Acquire, acquire)

    # -- Inside ------------------------------------------------------------------------------------

    def _say(self, effect: type[Acquire] | type[Renew] | type[Release], names: Sequence[str]) -> None:
        if names:
            self.out.append(effect(list(names)))

    def _refused(self, name: str, lease: _Lease, now: float) -> None:
        if not lease.wanted:
            del self._leases[name]
            return
        lease.state = "waiting"
        lease.due = now + self.terms.retry_seconds
        if not lease.refused:
            lease.refused = True
            self.out.append(Refused(name))

    def _extend(self, lease: _Lease, sent_at: float) -> None:
        lease.valid_until = sent_at + self.terms.ttl_seconds * OWN_PART
        lease.due = sent_at + self.terms.renew_every

    def _lose(self, name: str, lease: _Lease) -> None:
        lease.state = "lost"
        self.out.append(Lost(name))

    def _give_back(self, lease: _Lease, now: float) -> None:
        lease.state = "releasing"
        lease.busy = False
        lease.due = now

    def _given_back(self, name: str, lease: _Lease, now: float) -> None:
        if lease.wanted:
            self._leases[name] = _Lease(now)
        else:
            del self._leases[name]
