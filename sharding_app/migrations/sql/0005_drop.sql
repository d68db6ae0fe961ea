DROP FUNCTION @schema@.sharding_bury_v3(bigint, text);
DROP FUNCTION @schema@.sharding_locks_v1();
DROP FUNCTION @schema@.sharding_strangers_v1();
