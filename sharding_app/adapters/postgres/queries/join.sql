-- Joining again with the same incarnation keeps the age: the answer to the first try may have been lost.
WITH next AS (
    INSERT INTO sharding_cluster AS c (cluster_id, last_age) VALUES (replace(gen_random_uuid()::text, '-', ''), 1)
    ON CONFLICT (id) DO UPDATE SET last_age = c.last_age + 1
    RETURNING c.last_age
)
INSERT INTO sharding_node AS n (
    incarnation, name, host, pid, age, state, roles, app_version, candidate, types, deaf, server_started,
    server_timeline, server_system, backends, lock_key_1, lock_key_2, wire, addresses)
SELECT
    %(incarnation)s, %(name)s, %(host)s, %(pid)s, next.last_age, %(state)s, %(roles)s::jsonb, %(app_version)s,
    %(candidate)s, %(types)s::jsonb, %(deaf)s, %(server_started)s, %(server_timeline)s::bigint, %(server_system)s, %(backends)s::jsonb,
    %(key_1)s::bigint, %(key_2)s::bigint, %(wire)s::jsonb, %(addresses)s::jsonb
FROM next
ON CONFLICT (incarnation) DO UPDATE SET
    state = EXCLUDED.state, roles = EXCLUDED.roles, app_version = EXCLUDED.app_version,
    candidate = EXCLUDED.candidate, types = EXCLUDED.types, deaf = EXCLUDED.deaf,
    server_started = EXCLUDED.server_started, server_timeline = EXCLUDED.server_timeline, server_system = EXCLUDED.server_system,
    backends = EXCLUDED.backends, lock_key_1 = EXCLUDED.lock_key_1, lock_key_2 = EXCLUDED.lock_key_2,
    wire = EXCLUDED.wire, addresses = EXCLUDED.addresses,
    updated_at = now()
RETURNING n.age;
