-- Events of the last seconds, by type. The index sharding_event_at leaves all older parts of the table out.
-- Entities of shards of which this journal has a copy alone are left out. The shard in a row may be a former one: the present one
-- is known by the hash, where the number of shards is given, and is looked for once for each entity.
WITH copied AS MATERIALIZED (
    SELECT copied.*
    FROM unnest(%(copied_types)s::integer[], %(copied_shards)s::integer[], %(copied_numbers)s::integer[])
        AS copied (type_id, shard, number)
), written AS (
    SELECT e.type_id, e.entity, count(*) AS events, max(e.shard) AS shard
    FROM sharding_event e
    WHERE e.at >= now() - %(seconds)s * interval '1 second'
    GROUP BY e.type_id, e.entity
), placed AS MATERIALIZED (
    SELECT w.type_id, w.events,
        CASE WHEN k.number > 0 THEN (sharding_hash_v1(w.entity) %% k.number)::integer ELSE w.shard END AS shard
    FROM written w
    LEFT JOIN (SELECT DISTINCT c.type_id, c.number FROM copied c) k ON k.type_id = w.type_id
)
SELECT t.name, sum(p.events)::bigint, count(*)
FROM placed p
JOIN sharding_type t ON t.id = p.type_id
WHERE NOT EXISTS (SELECT FROM copied c WHERE c.type_id = p.type_id AND c.shard = p.shard)
GROUP BY t.name
ORDER BY sum(p.events) DESC, t.name
LIMIT %(limit)s;
