SELECT c.term, c.incarnation, n.asked, n.state, n.deaf,
    EXISTS (SELECT FROM sharding_type t WHERE t.uses_messages),
    (SELECT coalesce(sum(t.shards_revision + t.closings), 0)::bigint FROM sharding_type t)
FROM (VALUES (1)) AS always (one)
LEFT JOIN sharding_coordinator c ON true
LEFT JOIN sharding_node n ON n.incarnation = %(incarnation)s;
