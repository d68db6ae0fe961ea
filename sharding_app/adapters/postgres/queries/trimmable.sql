-- A page of a type's snapshots behind an entity, along their key: of which of these entities an event may be deleted, and how
-- many snapshots the page has; of how many events of each at most; the shard of its snapshots. Of each entity the first event
-- and the last one are read.
WITH page AS MATERIALIZED (
    SELECT s.entity, s.seq, s.shard
    FROM sharding_snapshot s
    WHERE s.type_id = %(type_id)s AND s.entity > %(after)s AND s.entity BETWEEN %(first)s AND %(last)s
    ORDER BY s.entity, s.seq
    LIMIT %(limit)s
), oldest AS (
    SELECT p.entity, min(p.seq) AS seq, max(p.shard) AS shard FROM page p GROUP BY p.entity
)
SELECT o.entity,
    coalesce(
        first.seq <= least(o.seq, newest.seq - %(keep)s)
            AND first.at < clock_timestamp() - %(window)s * interval '1 second',
        false),
    (SELECT count(*) FROM page), least(o.seq, newest.seq - %(keep)s) - first.seq + 1,
    o.shard
FROM oldest o
LEFT JOIN LATERAL (
    SELECT e.seq, e.at FROM sharding_event e
    WHERE e.type_id = %(type_id)s AND e.entity = o.entity
    ORDER BY e.seq LIMIT 1) first ON true
LEFT JOIN LATERAL (
    SELECT e.seq FROM sharding_event e
    WHERE e.type_id = %(type_id)s AND e.entity = o.entity
    ORDER BY e.seq DESC LIMIT 1) newest ON true
ORDER BY o.entity;
