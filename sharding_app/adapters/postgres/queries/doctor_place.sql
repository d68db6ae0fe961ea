SELECT current_database() || ' of the server that started at ' || pg_postmaster_start_time()::text;
