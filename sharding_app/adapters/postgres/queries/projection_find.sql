SELECT r.id, r.type_ids, r.paused, r.live, r.server, (SELECT system_identifier::text FROM pg_control_system())
FROM sharding_projection r
WHERE r.name = %(name)s AND r.version = %(version)s;
