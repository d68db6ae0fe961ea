"""The settings of a coordinator."""

import msgspec


class CoordinatorSettings(msgspec.Struct, frozen=True):
    retry_seconds: float = 0.25
    "Between repetitions of a message that is not acknowledged."
    begin_hand_off_wait_seconds: float = 1.0
    hand_off_timeout_seconds: float = 60.0
    rebalance_interval_seconds: float = 10.0
    max_concurrent_hand_offs: int = 100
    resized_at_once: int = 64
    "About the number of shards of a type that have no home at any time of a resize."
    proxy_expiry_seconds: float = 30.0
    min_members: int = 1
    """No shard is placed before this many nodes are up. Afterwards fewer will do: a failover does
    not wait."""
    min_members_of_role: dict[str, int] = {}
