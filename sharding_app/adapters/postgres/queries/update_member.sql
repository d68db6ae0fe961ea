UPDATE sharding_node SET
    state = COALESCE(%(state)s::text, state),
    deaf = COALESCE(%(deaf)s::boolean, deaf),
    server_started = COALESCE(%(server_started)s::text, server_started),
    server_timeline = COALESCE(%(server_timeline)s::bigint, server_timeline),
    roles = COALESCE(%(roles)s::jsonb, roles),
    types = COALESCE(%(types)s::jsonb, types),
    backends = COALESCE(%(backends)s::jsonb, backends),
    updated_at = now()
WHERE incarnation = %(incarnation)s
RETURNING 1;
