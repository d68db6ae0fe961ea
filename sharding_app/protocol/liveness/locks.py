"""Names of advisory locks: 64 bits of a hash, so that two clusters in one database do not meet.

Postgres keeps advisory locks for each database; the cluster's id tells clusters of one database
apart.
"""

from hashlib import blake2b

from sharding_app.protocol.ids import Incarnation


def lock_key(cluster_id: str, holder: str, number: int) -> int:
    """Return the key of a holder's n-th lock as Postgres wants it: a signed 64-bit integer."""
    text = "\0".join((cluster_id, holder, str(number)))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)


def lifeline_keys(cluster_id: str, incarnation: Incarnation) -> tuple[int, int]:
    """Return the keys of the two locks that show that a process lives."""
    return lock_key(cluster_id, incarnation, 0), lock_key(cluster_id, incarnation, 1)


def coordinator_key(cluster_id: str) -> int:
    """Return the key of the lock that the coordinator holds."""
    return lock_key(cluster_id, "coordinator", 0)
