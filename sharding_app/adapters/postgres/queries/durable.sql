-- Commits of this session are durable, whatever the role or the database has been set to. A stricter way stays.
SELECT @durable_session@;
