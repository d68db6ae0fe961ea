-- A small write. Its commit is acknowledged only when a synchronous standby has it, and all that was committed before. So it
-- is, whatever the session has been set to: the setting ends with this transaction.
SELECT
    pg_logical_emit_message(true, 'sharding', 'secure')::text,
    @durable_transaction@;
