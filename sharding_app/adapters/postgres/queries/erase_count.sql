-- What is stored of the entity. Nothing is locked. Messages are looked for as in erase_find.
SELECT
    (SELECT count(*) FROM sharding_event WHERE type_id = %(type_id)s AND entity = %(entity)s),
    (SELECT count(*) FROM sharding_snapshot WHERE type_id = %(type_id)s AND entity = %(entity)s),
    (SELECT count(*) FROM sharding_remembered WHERE type_id = %(type_id)s AND entity = %(entity)s),
    (SELECT count(*) FROM sharding_message
        WHERE type_id = %(type_id)s AND entity = %(entity)s
            AND (%(shard)s::integer IS NULL
                OR shard = ANY (%(shard)s::integer || sharding_former_shards_v1(%(type_id)s, %(entity)s))));
