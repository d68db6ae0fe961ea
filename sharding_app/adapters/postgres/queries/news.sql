SELECT c.term, c.incarnation, n.asked, n.state, n.deaf,
    EXISTS (SELECT FROM sharding_type t WHERE t.sets_in_motion)
FROM (VALUES (1)) AS always (one)
LEFT JOIN sharding_coordinator c ON true
LEFT JOIN sharding_node n ON n.incarnation = %(incarnation)s;
