-- Follow types from now on, or no more. Appends hold the rows of their shards to the end, and a coordinator that makes
-- new ones holds the type's row: so whatever was not written down as a change is committed when this has ended. While it
-- waits for one append, the shards before that one take none: so it waits for no longer than an append would, and fails.
CREATE FUNCTION @schema@.sharding_follow_v1(types integer[], wanted boolean) RETURNS void LANGUAGE plpgsql
    SET lock_timeout = '2s' AS $follow$
BEGIN
    PERFORM 1 FROM @schema@.sharding_type t
        WHERE t.id = ANY (types) AND t.followed <> wanted ORDER BY t.id FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    UPDATE @schema@.sharding_type t SET followed = wanted WHERE t.id = ANY (types) AND t.followed <> wanted;
    PERFORM 1 FROM @schema@.sharding_shard s
        WHERE s.type_id = ANY (types) AND s.followed <> wanted ORDER BY s.type_id, s.shard FOR NO KEY UPDATE;
    UPDATE @schema@.sharding_shard s SET followed = wanted WHERE s.type_id = ANY (types) AND s.followed <> wanted;
END
$follow$;
