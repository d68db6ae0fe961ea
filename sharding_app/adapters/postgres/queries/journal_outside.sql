-- Whether a message or a timer from outside waits for an entity whose shard lies in another journal.
SELECT EXISTS (
    SELECT FROM sharding_message m
    WHERE m.type_id = %(type_id)s AND m.shard = %(shard)s AND m.entity = %(entity)s);
