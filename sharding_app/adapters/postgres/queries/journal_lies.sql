-- Where this database lies.
SELECT (SELECT system_identifier FROM pg_control_system())::text
    || '/' || (SELECT oid FROM pg_database WHERE datname = current_database())::text;
