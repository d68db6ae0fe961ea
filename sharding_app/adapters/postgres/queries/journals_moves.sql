-- Moves of shards between journals, by type and way: whether they are over, how many shards, seconds since the last of them
-- was written, and whether a command that moves shards of the type is at work.
SELECT t.name, m.source, m.target, m.step = 'moved', count(*), min(extract(epoch FROM clock_timestamp() - m.at))::float8,
    EXISTS (
        SELECT FROM pg_locks l
        WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.objid = t.id::oid
            AND l.classid = (hashtext('sharding_move_journal')::bigint & 4294967295)::oid
            AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()))
FROM sharding_move m
JOIN sharding_type t ON t.id = m.type_id
GROUP BY t.id, t.name, m.source, m.target, m.step = 'moved'
ORDER BY t.name, m.source, m.target;
