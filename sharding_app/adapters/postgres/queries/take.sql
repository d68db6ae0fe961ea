SELECT taken, used, left_behind, moved_to
FROM sharding_take_v1(
    %(type_id)s, %(type)s, %(number)s, %(wanted)s, %(done)s, %(revision)s,
    %(shards)s::integer[], %(epochs)s::bigint[], %(home)s);
