DROP FUNCTION @schema@.sharding_bury_v2(bigint, text);
