"""Leases by name, for shards and singletons (`use_lease`): the node that runs one holds its lease.

The epochs of shards fence writes to the journal; a lease arbitrates for everything outside of it.
To use another arbiter (a Kubernetes object, a consensus store), write a class with these methods
and name a factory for it by its dotted path: `USE_LEASE` in `SHARDING`, or
`ShardingSettings(use_lease=...)`.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from sharding_app.protocol.liveness.shard_lease import LeaseTerms


class Leases(Protocol):
    """The leases of one node. All methods take many names at once.

    Any exception counts as "no answer": the call may have taken effect, and is tried again. A call
    that takes longer than `LeaseTerms.answer_seconds` is cancelled.
    """

    async def acquire(self, names: Sequence[str]) -> Collection[str]:
        """Try to take these leases for `LeaseTerms.ttl_seconds`; return those that this node holds
        now.

        Never waits for another holder. A lease that the node holds already is granted again.
        """
        ...

    async def renew(self, names: Sequence[str]) -> Collection[str]:
        """Prolong these leases, and return those that are still this node's: the others are lost.

        Other leases of this node may be prolonged with them. The node gives back each one that it
        does not want any more, and repeats that until it has an answer.
        """
        ...

    async def release(self, names: Sequence[str]) -> None:
        """Give back those of these leases that are this node's."""
        ...

    async def close(self) -> None: ...


LeaseFactory = Callable[[str, LeaseTerms], Leases]
"""Makes the leases of one node from its incarnation (the owner's name: unique, never used again)
and their times."""
