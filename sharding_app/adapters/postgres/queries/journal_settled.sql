-- Keeps types as they are configured.
UPDATE sharding_type SET changeable = false WHERE id = ANY (%(type_ids)s::integer[]) AND changeable RETURNING name;
