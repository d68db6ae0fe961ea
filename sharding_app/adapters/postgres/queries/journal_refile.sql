-- Lets a further journal follow a resize that it has not heard of. No row: it has another type of that number or name.
SELECT sharding_refile_v1(t.id, %(number)s, %(wanted)s, %(resized)s, %(revision)s, '{}')
FROM sharding_type t WHERE t.id = %(type_id)s AND t.name = %(type)s;
