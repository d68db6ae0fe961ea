-- What copies that shards have left behind have of an entity; without shards all of its rows are in them.
SELECT
    (SELECT count(*) FROM sharding_event e
        WHERE e.type_id = %(type_id)s AND e.entity = %(entity)s
            AND (%(shards)s::integer[] IS NULL OR e.shard = ANY (%(shards)s::integer[]))),
    (SELECT count(*) FROM sharding_snapshot s
        WHERE s.type_id = %(type_id)s AND s.entity = %(entity)s
            AND (%(shards)s::integer[] IS NULL OR s.shard = ANY (%(shards)s::integer[])));
