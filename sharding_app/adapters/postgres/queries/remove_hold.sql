-- No message is stored from outside while the others are given other shards.
LOCK TABLE sharding_message IN SHARE ROW EXCLUSIVE MODE;
