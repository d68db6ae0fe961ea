-- Former values of durable-state entities: those that are old go, the others keep what makes a retry safe and lose their
-- payload. The newest value always stays as it is, whatever the numbers say. A row of a former home is left until it is old:
-- its epoch tells that home whether its append was committed.
WITH wanted AS MATERIALIZED (
    SELECT given.entity, given.epoch, given.since, least(given.before, newest.seq) AS before,
        COALESCE((
            SELECT recent.seq FROM sharding_event recent
            WHERE recent.type_id = %(type_id)s AND recent.entity = given.entity
                AND recent.at >= clock_timestamp() - %(window)s * interval '1 second'
            ORDER BY recent.seq LIMIT 1), newest.seq) AS recent
    FROM unnest(%(entities)s::text[], %(epochs)s::bigint[], %(sinces)s::bigint[], %(befores)s::bigint[])
        AS given (entity, epoch, since, before)
    CROSS JOIN LATERAL (
        SELECT e.seq FROM sharding_event e
        WHERE e.type_id = %(type_id)s AND e.entity = given.entity
        ORDER BY e.seq DESC LIMIT 1
    ) AS newest
), gone AS (
    DELETE FROM sharding_event e USING wanted w
    WHERE e.type_id = %(type_id)s AND e.entity = w.entity AND e.seq < least(w.before, w.recent)
)
UPDATE sharding_event e SET payload = 'null'
FROM wanted w
WHERE e.type_id = %(type_id)s AND e.entity = w.entity AND e.epoch = w.epoch
    AND e.seq >= greatest(w.since, w.recent) AND e.seq < w.before AND e.payload::text <> 'null';
