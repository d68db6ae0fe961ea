-- In a further journal: types as the cluster numbers them, be it before a shard of theirs is taken there.
SELECT count(taken.used)
FROM unnest(%(ids)s::integer[], %(names)s::text[], %(numbers)s::integer[], %(wanted)s::integer[], %(resized)s::integer[],
    %(revisions)s::bigint[]) AS given (id, name, number, wanted, resized, revision)
CROSS JOIN LATERAL sharding_take_v1(
    given.id, given.name, given.number, given.wanted, given.resized, given.revision, '{}', '{}', '') taken;
