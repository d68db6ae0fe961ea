-- Events of the last seconds that carry the id of a command, of any entity. The index sharding_event_at leaves out what is older.
SELECT t.name, e.entity, e.seq, e.name, e.command, e.at, e.type_id, e.shard
FROM sharding_event e JOIN sharding_type t ON t.id = e.type_id
WHERE e.at >= now() - %(seconds)s * interval '1 second' AND e.command_id = %(command_id)s
ORDER BY e.at DESC
LIMIT 10;
