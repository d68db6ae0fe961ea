-- The epoch tells our own row from one that the shard's next home has written with this number.
SELECT EXISTS (
    SELECT FROM sharding_event
    WHERE type_id = %(type_id)s AND entity = %(entity)s AND seq = %(seq)s AND epoch = %(epoch)s
);
