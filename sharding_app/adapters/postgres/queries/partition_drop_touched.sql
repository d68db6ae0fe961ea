DELETE FROM sharding_event_next n
USING unnest(%(types)s::integer[], %(entities)s::text[], %(firsts)s::bigint[], %(lasts)s::bigint[])
    AS touched (type_id, entity, first, last)
WHERE n.type_id = touched.type_id AND n.entity = touched.entity AND n.seq BETWEEN touched.first AND touched.last;
