-- Not those from outside, which lie in the cluster's own database wherever their shards do.
DELETE FROM sharding_message m WHERE m.type_id = %(type_id)s AND m.shard = ANY (%(shards)s::integer[]) AND m.epoch IS NOT NULL;
