"""In which journal database a new shard lies.

Contract: the answer is asked once for each shard, when its row is made; the row keeps it. It
depends on the type, the shard and the weights alone, so all processes give the same one. A weight
that changes moves no more shards than it has to: for each shard the journals are ranked by a hash
of their own (weighted rendezvous hashing).

The workers of projections lie in the cluster's own: they store nothing, and follow all journals, so
that one that is down must not stop them for the others.
"""

import math
from collections.abc import Mapping
from hashlib import sha256

from sharding_app.protocol.ids import ShardId

CLUSTERS_OWN = ""
"""The name of the journal in the cluster's own database; others have the alias of theirs."""
PROJECTION_WORKERS = "workers:projection:"
"""Prefix of the type names of workers of projections."""
_HASHES = float(2**64)


def journal_of(type_name: str, shard: ShardId, weights: Mapping[str, float]) -> str:
    """Return the journal for a new shard. One without a weight gets none."""
    if type_name.startswith(PROJECTION_WORKERS) or not any(weights.values()):
        return CLUSTERS_OWN
    return max(
        (name for name, weight in weights.items() if weight > 0),
        key=lambda name: (_score(f"{name}\0{type_name}\0{shard}", weights[name]), name),
    )


def _score(text: str, weight: float) -> float:
    place = (int.from_bytes(sha256(text.encode()).digest()[:8]) + 1) / (_HASHES + 2)
    return -weight / math.log(place)
