SELECT term, incarnation FROM sharding_coordinator;
