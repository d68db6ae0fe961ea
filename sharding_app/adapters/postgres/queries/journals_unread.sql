-- The further journals that are to be read before rows of shards are complete again. A standby goes on in the lineage of the
-- last election, and cannot tell its own.
SELECT unnest(CASE
    WHEN NOT pg_is_in_recovery() THEN sharding_journals_to_read_v1()
    ELSE ARRAY(
        SELECT j.name FROM sharding_journal j CROSS JOIN sharding_coordinator c WHERE c.term >> 16 > c.journals_read)
END);
