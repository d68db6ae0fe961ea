-- Takes back the news of this transaction's events: all projections had passed them.
DELETE FROM sharding_change WHERE type_id = %(type_id)s AND xid = pg_current_xact_id();
