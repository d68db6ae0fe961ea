"""Leases by name, for shards and singletons (`use_lease`): whoever runs one holds its lease.

The epochs of shards fence what the journal stores; a lease beside them arbitrates for what lies outside of it. Write a
class with these methods to use another arbiter (a Kubernetes object, a consensus store), and name a factory for it by its
dotted path: `USE_LEASE` in `SHARDING`, or `ShardingSettings(use_lease=...)`.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from sharding_app.core.shard_lease import LeaseTerms


class Leases(Protocol):
    """The leases of one node. All methods take many names at once. Whatever they raise counts as "no answer": whether it
    took effect is not known, and it is tried again. An answer that takes longer than `LeaseTerms.answer_seconds` is
    given up by cancelling the call."""

    async def acquire(self, names: Sequence[str]) -> Collection[str]:
        """Try to take these leases for `LeaseTerms.ttl_seconds`; return those that this node holds now. Never waits for
        another holder. One that it holds already is granted again."""
        ...

    async def renew(self, names: Sequence[str]) -> Collection[str]:
        """Prolong these, and return those that are still this node's: the others are lost."""
        ...

    async def release(self, names: Sequence[str]) -> None:
        """Give these back, as far as they are this node's."""
        ...

    async def close(self) -> None: ...


LeaseFactory = Callable[[str, LeaseTerms], Leases]
"""Makes the leases of one node, given its incarnation (the owner's name: unique, never used again) and their times."""
