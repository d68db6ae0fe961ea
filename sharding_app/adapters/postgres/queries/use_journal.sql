UPDATE sharding_node
SET journals = (journals - %(name)s::text) || CASE WHEN %(used)s THEN jsonb_build_array(%(name)s::text) ELSE '[]'::jsonb END
WHERE incarnation = %(incarnation)s
RETURNING 1;
