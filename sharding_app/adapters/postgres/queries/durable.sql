-- Commits of this session are durable, whatever the role or the database has been set to. A stricter way stays.
SELECT CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')
    THEN set_config('synchronous_commit', 'on', false) END;
