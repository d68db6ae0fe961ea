UPDATE sharding_node SET asked = %(request)s::text, updated_at = now()
WHERE incarnation = ANY (%(incarnations)s::text[])
RETURNING incarnation;
