-- A small write. Its commit is acknowledged only when a synchronous standby has it, and all that was committed before. So it
-- is, whatever the session has been set to: the setting ends with this transaction.
SELECT
    pg_logical_emit_message(true, 'sharding', 'secure')::text,
    CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')
        THEN set_config('synchronous_commit', 'on', true) END;
