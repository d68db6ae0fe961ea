-- Types whose events differ in number or content between the journal and its copy. Both are read whole.
WITH stored AS (
    SELECT e.type_id, count(*) AS rows, sum(hashtextextended(e::text, 0)::numeric) AS hashes
    FROM sharding_event e, sharding_partitioning p
    WHERE e.type_id > p.before_type AND e.type_id <= p.last_type
    GROUP BY e.type_id
), copied AS (
    SELECT n.type_id, count(*) AS rows, sum(hashtextextended(n::text, 0)::numeric) AS hashes
    FROM sharding_event_next n
    GROUP BY n.type_id
)
SELECT coalesce(s.type_id, c.type_id), coalesce(s.rows, 0), coalesce(c.rows, 0)
FROM stored s FULL JOIN copied c ON c.type_id = s.type_id
WHERE (s.rows, s.hashes) IS DISTINCT FROM (c.rows, c.hashes)
ORDER BY 1;
