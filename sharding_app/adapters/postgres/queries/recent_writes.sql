-- Events of the last seconds, by type. The index sharding_event_at leaves all older parts of the table out.
SELECT t.name, counted.events, counted.entities
FROM (
    SELECT e.type_id, count(*) AS events, count(DISTINCT e.entity) AS entities
    FROM sharding_event e
    WHERE e.at >= now() - %(seconds)s * interval '1 second'
    GROUP BY e.type_id
) AS counted
JOIN sharding_type t ON t.id = counted.type_id
ORDER BY counted.events DESC, t.name
LIMIT %(limit)s;
