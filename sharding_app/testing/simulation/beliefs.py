"""The leases of shards as their holders know them, and for how long each may believe in its lease.

An arbiter may hand a lease on before its time is over: an operator has freed it, or its server went
back in time. The former holder learns of that by the answer to its next renewal. Without an answer
it believes in the lease until nine tenths of its time are over, counted by its own clock from its
last successful request. It handles until then and no longer. A pause adds nothing, and it makes no
difference that the other owner has let go.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from sharding_app.ports.lease import Leases
from sharding_app.protocol.ids import Incarnation

BELIEVED_PART = 0.9
"""Share of a lease's time. Deliberately not the constant of the code that is judged."""


class Belief(NamedTuple):
    asked_at: float
    "By the world's clock."
    until: float
    "By the holder's own clock."


class Beliefs:
    """The beliefs of all nodes."""

    def __init__(self, now: Callable[[], float], ttl_seconds: float) -> None:
        self._now = now
        self._believed_seconds = ttl_seconds * BELIEVED_PART
        self._beliefs: dict[tuple[Incarnation, str], Belief] = {}
        self._taken: dict[str, float] = {}
        "Leases that were handed on early, and when."
        self._all_taken = float("-inf")

    # -- Reports -----------------------------------------------------------------------------------

    def of(self, leases: Leases, owner: Incarnation, own_now: Callable[[], float]) -> Leases:
        """Listen to the answers that one node gets."""
        return _Heard(leases, self, owner, own_now)

    def asked(self, own_now: float) -> Belief:
        """Return the belief that a node may have if a request that it makes now succeeds."""
        return Belief(self._now(), own_now + self._believed_seconds)

    def answered(
        self, owner: Incarnation, names: Iterable[str], has: Collection[str], belief: Belief
    ) -> None:
        for name in names:
            if name in has:
                self._beliefs[owner, name] = belief
            else:
                self._beliefs.pop((owner, name), None)

    def taken(self, lease: str) -> None:
        """Note that a lease was handed on before its holder's time is over."""
        self._taken[lease] = self._now()

    def all_taken(self) -> None:
        """Note that the server went back in time and has forgotten leases that it granted since."""
        self._all_taken = self._now()

    # -- Questions ---------------------------------------------------------------------------------

    def believes(self, owner: Incarnation, lease: str, own_now: float) -> bool:
        """Whether a node may go on as the holder."""
        belief = self._beliefs.get((owner, lease))
        return belief is not None and own_now < belief.until

    def was_taken(self, owner: Incarnation, lease: str) -> bool:
        """Whether the lease was handed on since that node last asked for it with success."""
        belief = self._beliefs.get((owner, lease))
        return belief is not None and belief.asked_at <= max(
            self._taken.get(lease, float("-inf")), self._all_taken
        )


class _Heard:
    """`ports.lease.Leases` of one node."""

    def __init__(
        self, leases: Leases, beliefs: Beliefs, owner: Incarnation, own_now: Callable[[], float]
    ) -> None:
        self._leases = leases
        self._beliefs = beliefs
        self._owner = owner
        self._own_now = own_now

    async def acquire(self, names: Sequence[str]) -> Collection[str]:
        belief = self._beliefs.asked(self._own_now())
        granted = await self._leases.acquire(names)
        self._beliefs.answered(self._owner, names, granted, belief)
        return granted

    async def renew(self, names: Sequence[str]) -> Collection[str]:
        belief = self._beliefs.asked(self._own_now())
        kept = await self._leases.renew(names)
        self._beliefs.answered(self._owner, names, kept, belief)
        return kept

    async def release(self, names: Sequence[str]) -> None:
        self._beliefs.answered(self._owner, names, (), self._beliefs.asked(self._own_now()))
        await self._leases.release(names)

    async def close(self) -> None:
        await self._leases.close()
