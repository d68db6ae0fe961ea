ALTER TABLE @schema@.sharding_event RESET (autovacuum_vacuum_scale_factor);
