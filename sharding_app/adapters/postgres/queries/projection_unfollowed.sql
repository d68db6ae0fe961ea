-- Those of these types that no projection follows any more.
SELECT wanted.type_id FROM unnest(%(types)s::integer[]) AS wanted (type_id)
WHERE NOT EXISTS (SELECT FROM sharding_projection r WHERE wanted.type_id = ANY (r.type_ids));
