UPDATE sharding_node SET
    state = COALESCE(%(state)s::text, state),
    deaf = COALESCE(%(deaf)s::boolean, deaf),
    server_started = CASE WHEN NOT %(unsettled)s THEN COALESCE(%(server_started)s::text, server_started) END,
    server_timeline = CASE WHEN NOT %(unsettled)s THEN COALESCE(%(server_timeline)s::bigint, server_timeline) END,
    server_system = CASE WHEN NOT %(unsettled)s THEN COALESCE(%(server_system)s::text, server_system) END,
    roles = COALESCE(%(roles)s::jsonb, roles),
    types = COALESCE(%(types)s::jsonb, types),
    backends = COALESCE(%(backends)s::jsonb, backends),
    updated_at = now()
WHERE incarnation = %(incarnation)s
RETURNING 1;
