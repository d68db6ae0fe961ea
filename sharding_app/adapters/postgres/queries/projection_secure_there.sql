-- In a further journal, before positions are committed in the cluster's database: a commit of its own, behind all that they
-- have seen. A standby that takes over has both, or lacks this transaction, and that is noticed. It is waited for, whatever
-- the session has been set to: the setting ends with this transaction.
INSERT INTO sharding_secured AS s (projection_id, first_slice, xid)
SELECT %(id)s, given.first, pg_current_xact_id() FROM unnest(%(firsts)s::integer[]) AS given (first)
ORDER BY given.first
ON CONFLICT (projection_id, first_slice) DO UPDATE SET xid = greatest(s.xid, EXCLUDED.xid)
RETURNING
    pg_current_xact_id()::text::bigint,
    @durable_transaction@;
