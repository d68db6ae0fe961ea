-- Writes where a member's locks are held, and reads its homes, on one server. The write comes first: a coordinator that
-- is about to bury the member meets it. One row comes back without any home too, and says whether there is a row to write.
WITH mine AS (
    UPDATE sharding_node SET
        server_started = %(server_started)s, server_timeline = %(server_timeline)s::bigint,
        server_system = %(server_system)s, updated_at = now()
    WHERE incarnation = %(incarnation)s
    RETURNING 1
)
SELECT @server@, EXISTS (SELECT FROM mine), home.type, home.shard, home.epoch, home.home, home.step, home.uses_messages
FROM (VALUES (1)) AS always (one)
LEFT JOIN (
    SELECT t.name AS type, s.shard, s.epoch, s.home, s.step, t.uses_messages
    FROM sharding_shard s
    JOIN sharding_type t ON t.id = s.type_id
    WHERE s.shard < sharding_modulus_v1(s.shard, t.number_of_shards, t.shards_wanted, t.groups_resized) AND s.home = %(incarnation)s
) home ON true
ORDER BY home.type, home.shard;
