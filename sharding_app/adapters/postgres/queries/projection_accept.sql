UPDATE sharding_projection SET server = (SELECT system_identifier::text FROM pg_control_system())
WHERE name = %(name)s AND version = %(version)s RETURNING id;
