-- Each table of ours: is it there, and, where it must be fenced, are both triggers on, in replicas' sessions too or not.
SELECT
    t.name,
    to_regclass('sharding_' || t.name) IS NOT NULL,
    NOT t.fenced OR (
        SELECT count(*) = 2 FROM pg_trigger g
        WHERE g.tgrelid = to_regclass('sharding_' || t.name) AND g.tgname IN ('sharding_fence', 'sharding_fence_update')
            AND g.tgenabled IN ('O', 'A'))
FROM (VALUES
    ('cluster', false), ('coordinator', false), ('node', false), ('type', false), ('shard', false), ('event', true),
    ('snapshot', true), ('remembered', true), ('lease', false), ('decision', false),
    ('location', false)
) AS t (name, fenced);
