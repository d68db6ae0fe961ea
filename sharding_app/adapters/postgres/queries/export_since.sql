-- A moment before all snapshots that a reading may miss which begins now, as times stand in a file. Clocks of journals differ.
SELECT to_char((clock_timestamp() - interval '10 minutes') AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"');
