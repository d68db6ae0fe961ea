-- In a further journal: what is there of a version, be it of a former one of that name. Its types come back.
WITH gone AS (
    DELETE FROM sharding_projection r
    WHERE (r.name = %(name)s::text AND r.version = %(version)s::integer) OR r.id = %(id)s::integer
    RETURNING r.id, r.type_ids
), positions AS (
    DELETE FROM sharding_position p USING gone WHERE p.projection_id = gone.id
), held AS (
    DELETE FROM sharding_held h USING gone WHERE h.projection_id = gone.id
), following AS (
    DELETE FROM sharding_following f USING gone WHERE f.projection_id = gone.id
), secured AS (
    DELETE FROM sharding_secured s USING gone WHERE s.projection_id = gone.id
)
SELECT type_ids FROM gone;
