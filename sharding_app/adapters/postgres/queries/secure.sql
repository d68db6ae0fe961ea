-- A small write. Its commit is acknowledged only when a synchronous standby has it, and all that was committed before.
SELECT pg_logical_emit_message(true, 'sharding', 'secure')::text;
