SELECT DISTINCT used.name
FROM sharding_node n
CROSS JOIN LATERAL jsonb_array_elements_text(n.journals) AS used (name)
WHERE n.state = 'up' AND n.incarnation <> %(but)s;
