-- Changes that all projections of a type have behind them, a piece at a time.
WITH deleted AS (
    DELETE FROM sharding_change c WHERE c.ctid = ANY (ARRAY(
        SELECT old.ctid
        FROM sharding_change old
        WHERE old.type_id = %(type_id)s AND old.xid < (
            SELECT min(pg_snapshot_xmin(p.position)::text::bigint)::text::xid8
            FROM sharding_projection r
            JOIN sharding_position p ON p.projection_id = r.id AND p.journal = ''
            WHERE %(type_id)s = ANY (r.type_ids))
        ORDER BY old.xid
        LIMIT %(limit)s))
    RETURNING 1
)
SELECT count(*) FROM deleted;
