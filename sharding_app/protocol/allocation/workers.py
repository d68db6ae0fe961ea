"""Numbered workers: one shard for each, and the shards that there are to be.

A set of workers is a type whose shards are its workers: shard 3 is worker 3. Its number of workers
is in the rows (`protocol.records.NumberOfWorkers`), so that a rescale needs no change of the type.
"""

from sharding_app.protocol.allocation.least_shards import LeastShardAllocation

WORKERS = "workers:"
"""Prefix of the type names of workers: by it the coordinator knows that they are placed unasked."""

MOST_WORKERS = 1024
"""The number of shards of each such type. Those beyond the number of workers have no home."""

EVENLY = LeastShardAllocation(absolute_limit=MOST_WORKERS, relative_limit=1.0)
"""Spreads the workers of a set over the nodes of its role, in one round of moves."""
