-- In a further journal: whether it has all that the cluster's positions rest on, and the other way round. Its server; since
-- when it is followed; whether nothing was deleted that these positions have not passed; and whether the transactions are
-- there that were committed before them. And whether events would be left out.
SELECT s.system_identifier::text, f.began::text::bigint,
    coalesce(f.passed::text::bigint <= (
        SELECT min(pg_snapshot_xmin(given.position::pg_snapshot)::text::bigint)
        FROM unnest(%(positions)s::text[]) AS given (position)), true),
    NOT EXISTS (
        SELECT FROM unnest(%(firsts)s::integer[], %(secured)s::bigint[]) AS given (first, xid)
        LEFT JOIN sharding_secured t ON t.projection_id = %(id)s AND t.first_slice = given.first
        WHERE given.xid IS NOT NULL AND (t.xid IS NULL OR t.xid::text::bigint < given.xid)),
    @filtered@
FROM pg_control_system() s
LEFT JOIN sharding_following f ON f.projection_id = %(id)s AND f.journal = '';
