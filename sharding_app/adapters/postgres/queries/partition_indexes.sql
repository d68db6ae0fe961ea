-- The indexes of a table, in the order in which they were made: so those of two tables of one shape correspond.
SELECT i.relname, a.amname, x.indisprimary
FROM pg_index x
JOIN pg_class i ON i.oid = x.indexrelid
JOIN pg_am a ON a.oid = i.relam
WHERE x.indrelid = to_regclass(%(table)s)
ORDER BY x.indisprimary DESC, a.amname, i.oid;
