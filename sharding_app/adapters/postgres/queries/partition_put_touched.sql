INSERT INTO sharding_event_next
SELECT e.*
FROM unnest(%(types)s::integer[], %(entities)s::text[], %(firsts)s::bigint[], %(lasts)s::bigint[])
    AS touched (type_id, entity, first, last)
CROSS JOIN sharding_partitioning p
CROSS JOIN LATERAL (
    SELECT e.* FROM sharding_event e
    WHERE e.type_id = touched.type_id AND e.entity = touched.entity AND e.seq BETWEEN touched.first AND touched.last
    ORDER BY e.seq
) e
WHERE touched.type_id > p.before_type AND touched.type_id <= p.last_type
ON CONFLICT DO NOTHING;
