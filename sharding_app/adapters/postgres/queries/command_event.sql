-- The event of one entity that carries the id of a command, by the index on hashes. The comparisons of type and
-- entity keep the planner from the key, as in outcome.sql.
SELECT t.name, e.entity, e.seq, e.name, e.command, e.at, e.type_id, e.shard
FROM sharding_event e JOIN sharding_type t ON t.id = e.type_id
WHERE hashtextextended(e.command_id, hashtextextended(e.entity, e.type_id))
        = hashtextextended(%(command_id)s, hashtextextended(%(entity)s, %(type_id)s))
    AND NOT starts_with(e.command_id, '?')
    AND e.type_id = ANY (ARRAY[%(type_id)s, %(type_id)s]::integer[]) AND e.entity || '' = %(entity)s AND e.command_id = %(command_id)s
ORDER BY e.seq DESC
LIMIT 10;
