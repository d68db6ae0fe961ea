SELECT c.term, c.incarnation, (SELECT n.asked FROM sharding_node n WHERE n.incarnation = %(incarnation)s)
FROM (VALUES (1)) AS always (one)
LEFT JOIN sharding_coordinator c ON true;
