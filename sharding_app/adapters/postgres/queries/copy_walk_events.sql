-- The next events of a type behind a key, by entity, with a shard that stands in them.
SELECT page.entity, min(page.seq), max(page.seq), min(page.shard)
FROM (
    SELECT e.entity, e.seq, e.shard FROM sharding_event e
    WHERE e.type_id = %(type_id)s AND (e.entity, e.seq) > (%(entity)s, %(seq)s)
    ORDER BY e.entity, e.seq
    LIMIT %(limit)s
) page
GROUP BY page.entity
ORDER BY page.entity;
