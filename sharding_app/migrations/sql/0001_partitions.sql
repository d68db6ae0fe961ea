-- Partitions of sharding_event: one for each type. A journal that is not partitioned pays nothing for these functions.
-- `manage.py sharding_partition` changes the layout of a journal in use; docs/tables.md says how.

-- Makes the table of a type's events, beside the parent and in its shape, divided by a hash of the entity into `parts`. Each
-- of its tables has the fence: so it also binds a writer that names a partition. The caller attaches it.
CREATE FUNCTION @schema@.sharding_make_partition_v1(
    parent regclass, new_name text, number integer, parts integer, storage text
) RETURNS void LANGUAGE plpgsql AS $make$
DECLARE
    made text[] := ARRAY[new_name];
    each_name text;
    stranger oid;
BEGIN
    IF parts = 1 THEN
        EXECUTE format('CREATE TABLE @schema@.%I (LIKE %s INCLUDING ALL) WITH (%s)', new_name, parent, storage);
    ELSE
        EXECUTE format('CREATE TABLE @schema@.%I (LIKE %s INCLUDING ALL) PARTITION BY HASH (entity)', new_name, parent);
        FOR part IN 0 .. parts - 1 LOOP
            each_name := format('sharding_event_%s_%s_%s', number, parts, part);
            EXECUTE format(
                'CREATE TABLE @schema@.%I PARTITION OF @schema@.%I FOR VALUES WITH (MODULUS %s, REMAINDER %s) WITH (%s)',
                each_name, new_name, parts, part, storage);
            made := made || each_name;
        END LOOP;
    END IF;
    FOREACH each_name IN ARRAY made LOOP
        EXECUTE format(
            'CREATE TRIGGER sharding_fence AFTER INSERT ON @schema@.%I REFERENCING NEW TABLE AS new_rows'
            ' FOR EACH STATEMENT EXECUTE FUNCTION @schema@.sharding_fence_v1()', each_name);
        EXECUTE format(
            'CREATE TRIGGER sharding_fence_update AFTER UPDATE ON @schema@.%I REFERENCING NEW TABLE AS new_rows'
            ' FOR EACH STATEMENT EXECUTE FUNCTION @schema@.sharding_fence_v1()', each_name);
        -- Rights are those on the journal as a whole. The defaults of a schema may have given others.
        FOR stranger IN
            SELECT DISTINCT a.grantee
            FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a
            WHERE c.oid = to_regclass(format('@schema@.%I', each_name)) AND a.grantee <> c.relowner
        LOOP
            EXECUTE format('REVOKE ALL ON @schema@.%I FROM %s', each_name,
                CASE stranger WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(stranger)) END);
        END LOOP;
    END LOOP;
END
$make$;

-- The storage parameters of the journal's tables: those of one of them.
CREATE FUNCTION @schema@.sharding_journal_storage_v1() RETURNS text STABLE LANGUAGE sql AS $storage$
    SELECT coalesce(
        (
            SELECT array_to_string(c.reloptions, ', ')
            FROM pg_class c
            WHERE c.relkind = 'r' AND c.reloptions IS NOT NULL AND (
                c.oid = to_regclass('@schema@.sharding_event')
                OR c.oid IN (SELECT tree.relid FROM pg_partition_tree(to_regclass('@schema@.sharding_event')) tree))
            ORDER BY c.oid
            LIMIT 1),
        'autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05,'
        ' autovacuum_vacuum_scale_factor = 0.02')
$storage$;

-- A new type has its partition from the transaction that registers it. Attaching lets appends and reads go on.
CREATE FUNCTION @schema@.sharding_partition_type_v1() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $partition_type$
DECLARE
    journal regclass := to_regclass('@schema@.sharding_event');
BEGIN
    IF (SELECT c.relkind FROM pg_class c WHERE c.oid = journal) = 'p' THEN
        PERFORM @schema@.sharding_make_partition_v1(
            journal, 'sharding_event_' || NEW.id, NEW.id, 1, @schema@.sharding_journal_storage_v1());
        EXECUTE format('ALTER TABLE @schema@.sharding_event ATTACH PARTITION @schema@.%I FOR VALUES IN (%s)',
            'sharding_event_' || NEW.id, NEW.id);
    END IF;
    RETURN NULL;
END
$partition_type$;

CREATE TRIGGER sharding_partition_type AFTER INSERT ON @schema@.sharding_type
    FOR EACH ROW EXECUTE FUNCTION @schema@.sharding_partition_type_v1();

-- While the journal is copied into another layout: which rows were written or deleted. The command makes the triggers and the
-- table, and drops them.
CREATE FUNCTION @schema@.sharding_note_touched_v1() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $note_touched$
BEGIN
    INSERT INTO @schema@.sharding_event_touched (type_id, entity, first, last)
        SELECT t.type_id, t.entity, min(t.seq), max(t.seq) FROM touched_rows t GROUP BY t.type_id, t.entity;
    RETURN NULL;
END
$note_touched$;
