-- Each table of ours: is it there, and, where it must be fenced, are its triggers on, in replicas' sessions too or not.
-- A message is fenced when it is stored; the homes of targets change it later. And which other triggers are missing or off,
-- and whether row-level security leaves out rows of the table for this role.
SELECT
    t.name,
    to_regclass('sharding_' || t.name) IS NOT NULL,
    t.fences = (
        SELECT count(*) FROM pg_trigger g
        WHERE g.tgrelid = to_regclass('sharding_' || t.name) AND g.tgname IN ('sharding_fence', 'sharding_fence_update')
            AND g.tgenabled IN ('O', 'A')),
    ARRAY(
        SELECT needed.name FROM unnest(t.others) AS needed (name)
        WHERE NOT EXISTS (
            SELECT FROM pg_trigger g
            WHERE g.tgrelid = to_regclass('sharding_' || t.name) AND g.tgname = needed.name AND g.tgenabled IN ('O', 'A'))),
    coalesce(row_security_active(to_regclass('sharding_' || t.name)), false)
FROM (VALUES
    ('cluster', 0, '{}'::text[]), ('coordinator', 0, '{}'), ('node', 0, '{}'), ('type', 0, '{sharding_partition_type}'),
    ('shard', 0, '{}'), ('event', 2, '{}'), ('snapshot', 2, '{}'), ('remembered', 2, '{}'),
    ('message', 1, '{sharding_uses_messages}'), ('taken', 1, '{}'), ('lease', 0, '{}'), ('decision', 0, '{}'),
    ('location', 0, '{}'), ('change', 0, '{}'), ('projection', 0, '{}'), ('position', 0, '{}'), ('filled', 0, '{}'),
    ('held', 0, '{}'), ('following', 0, '{}'), ('secured', 0, '{}'), ('subject', 0, '{}'), ('journal', 0, '{}'),
    ('move', 0, '{}')
) AS t (name, fences, others);
