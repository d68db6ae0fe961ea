SELECT e.seq FROM sharding_event e
WHERE e.type_id = (SELECT t.id FROM sharding_type t WHERE t.name = %(type)s) AND e.entity = %(entity)s
ORDER BY e.seq DESC
LIMIT 1;
