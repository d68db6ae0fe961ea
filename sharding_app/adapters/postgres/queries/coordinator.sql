SELECT term, incarnation, (SELECT coalesce(sum(shards_revision + closings), 0)::bigint FROM sharding_type) FROM sharding_coordinator;
