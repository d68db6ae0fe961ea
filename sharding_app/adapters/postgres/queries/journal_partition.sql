-- The partition that has the events of this type alone, if this role may empty it. Not while the journal is copied into another
-- layout: deletions are noted for the copy, and this would not be.
SELECT i.inhrelid::regclass::text
FROM pg_inherits i
WHERE i.inhparent = to_regclass('sharding_event') AND i.inhrelid = to_regclass('sharding_event_' || %(type_id)s::integer)
    AND has_table_privilege(i.inhrelid, 'TRUNCATE') AND to_regclass('sharding_event_touched') IS NULL;
