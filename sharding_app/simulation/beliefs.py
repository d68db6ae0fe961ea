"""What nodes have been told of the leases of their shards, and for how long each may believe in it.

An arbiter may hand a lease on though its time is not over: an operator has freed it, or its server went back in time. The
former holder learns of that by the answer to its next renewal. Where no answer comes it believes in the lease until nine
tenths of its time are over, counted by its own clock from when it last asked for it with success. It handles for so long
and no longer: a pause adds nothing, and it makes no difference that the other owner has let go.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from sharding_app.core.ids import Incarnation
from sharding_app.ports.lease import Leases

BELIEVED_PART = 0.9
"""Of a lease's time. Not the constant of the code that is judged."""


class Belief(NamedTuple):
    asked_at: float
    "By the world's clock."
    until: float
    "By the holder's own clock."


class Beliefs:
    """Of all nodes."""

    def __init__(self, now: Callable[[], float], ttl_seconds: float) -> None:
        self._now = now
        self._believed_seconds = ttl_seconds * BELIEVED_PART
        self._beliefs: dict[tuple[Incarnation, str], Belief] = {}
        self._taken: dict[str, float] = {}
        "Leases that were handed on before their time was over, and when that was."
        self._all_taken = float("-inf")

    # -- Told --------------------------------------------------------------------------------------------------

    def of(self, leases: Leases, owner: Incarnation, own_now: Callable[[], float]) -> Leases:
        """Listen to the answers that one node gets."""
        return _Heard(leases, self, owner, own_now)

    def asked(self, own_now: float) -> Belief:
        """What a node may believe if a request that it makes now succeeds."""
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
        """Another owner has it, though its holder's time is not over."""
        self._taken[lease] = self._now()

    def all_taken(self) -> None:
        """The server went back in time: what it has granted since is forgotten."""
        self._all_taken = self._now()

    # -- Asked -------------------------------------------------------------------------------------------------

    def believes(self, owner: Incarnation, lease: str, own_now: float) -> bool:
        """Whether a node may go on as the holder."""
        belief = self._beliefs.get((owner, lease))
        return belief is not None and own_now < belief.until

    def was_taken(self, owner: Incarnation, lease: str) -> bool:
        """Whether it was handed on since that node last asked for it with success."""
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
