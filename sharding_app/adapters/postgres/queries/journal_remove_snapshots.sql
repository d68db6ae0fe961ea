-- A piece of the snapshots, of whole entities. Events whose first ones are gone go too: nothing would cover what is missing.
WITH page AS MATERIALIZED (
    SELECT DISTINCT p.entity FROM (
        SELECT s.entity FROM sharding_snapshot s
        WHERE s.type_id = %(type_id)s AND s.entity >= %(after)s
        ORDER BY s.entity, s.seq LIMIT %(rows)s
    ) p
), trimmed AS MATERIALIZED (
    SELECT page.entity FROM page
    WHERE NOT EXISTS (
        SELECT FROM sharding_event e WHERE e.type_id = %(type_id)s AND e.entity = page.entity AND e.seq = 1)
), events AS (
    DELETE FROM sharding_event e USING trimmed
    WHERE e.type_id = %(type_id)s AND e.entity = trimmed.entity RETURNING 1
), snapshots AS (
    DELETE FROM sharding_snapshot s USING page WHERE s.type_id = %(type_id)s AND s.entity = page.entity RETURNING 1
)
SELECT (SELECT count(*) FROM events), (SELECT count(*) FROM snapshots), (SELECT max(page.entity) FROM page);
