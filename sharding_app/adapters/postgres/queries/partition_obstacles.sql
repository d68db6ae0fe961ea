-- What refers to the journal's table itself, or to the partition that is replaced (null: none), and would stay with the former one.
SELECT format('the view %%s reads it', r.ev_class::regclass)
FROM pg_depend d JOIN pg_rewrite r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = to_regclass('sharding_event') AND r.ev_class <> d.refobjid
UNION
SELECT format('it has the rule %%I', r.rulename) FROM pg_rewrite r WHERE r.ev_class = to_regclass('sharding_event')
UNION
SELECT format('the publication %%I publishes it', p.pubname)
FROM pg_publication_tables p
JOIN pg_namespace n ON n.nspname = p.schemaname
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename
WHERE c.oid = to_regclass('sharding_event')
    OR c.oid IN (SELECT tree.relid FROM pg_partition_tree(to_regclass('sharding_event')) tree)
UNION
SELECT format('it has the foreign key %%I, or is its target', k.conname) FROM pg_constraint k
WHERE k.contype = 'f' AND to_regclass('sharding_event') IN (k.conrelid, k.confrelid)
UNION
SELECT format('it has the trigger %%I', g.tgname) FROM pg_trigger g
WHERE g.tgrelid = to_regclass('sharding_event') AND NOT g.tgisinternal AND NOT starts_with(g.tgname, 'sharding_')
UNION
SELECT 'shards are being copied from it to another journal (sharding_move_journal)'
WHERE to_regclass('sharding_moving') IS NOT NULL
UNION
SELECT 'it has row-level security' FROM pg_class c
WHERE c.oid = to_regclass('sharding_event')
    AND (c.relrowsecurity OR EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid))
UNION
SELECT format('%%s inherits from it', i.inhrelid::regclass) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhparent
WHERE i.inhparent = to_regclass('sharding_event') AND c.relkind = 'r'
UNION
SELECT format('%%s is a partition of it that is not of one type, or has another name', i.inhrelid::regclass)
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhparent
WHERE i.inhparent = to_regclass('sharding_event') AND c.relkind = 'p'
    AND (SELECT p.relname FROM pg_class p WHERE p.oid = i.inhrelid) !~ '^sharding_event_[0-9]+$'
UNION
SELECT format('its partition %%s has the index %%s, which the table has not', x.indrelid::regclass, x.indexrelid::regclass)
FROM pg_index x
WHERE x.indrelid IN (SELECT tree.relid FROM pg_partition_tree(to_regclass(%(partition)s::text)) tree)
    AND NOT EXISTS (SELECT FROM pg_inherits h WHERE h.inhrelid = x.indexrelid)
UNION
SELECT format('the function %%I belongs to %%I, a role that may not change the table', f.proname, pg_get_userbyid(f.proowner))
FROM pg_proc f
JOIN pg_class c ON c.oid = to_regclass('sharding_event') AND c.relnamespace = f.pronamespace
WHERE f.proname IN ('sharding_note_touched_v1', 'sharding_partition_type_v1') AND NOT pg_has_role(f.proowner, c.relowner, 'USAGE')
ORDER BY 1;
