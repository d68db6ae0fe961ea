-- Commits of this session are durable, whatever the role or the database has been set to. A stricter way stays. None of its
-- transactions is cut short: a setting that is newer than our oldest server.
SELECT @durable_session@,
    CASE WHEN current_setting('transaction_timeout', true) <> '0'
        THEN set_config('transaction_timeout', '0', false) END;
