-- Where histories are trimmed, values replaced and entities erased, dead rows count too: not only at a fifth of a large table.
ALTER TABLE @schema@.sharding_event SET (autovacuum_vacuum_scale_factor = 0.02);
