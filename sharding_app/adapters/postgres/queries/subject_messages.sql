-- A page of all messages and timers, for a search through them.
SELECT m.id, t.name, m.entity, m.target_type, m.target, m.command, m.args,
    to_char(m.due AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), m.key
FROM sharding_message m
JOIN sharding_type t ON t.id = m.type_id
WHERE m.id > %(after)s
ORDER BY m.id
LIMIT %(limit)s;
