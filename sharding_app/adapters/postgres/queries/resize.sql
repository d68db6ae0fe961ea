-- As the function: no row if the number is refused.
SELECT number, shards_wanted
FROM sharding_resize_v1(%(type)s, %(known)s::integer, %(wanted)s::integer, %(by)s::text);
