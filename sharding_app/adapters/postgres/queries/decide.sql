SELECT type, shard, epoch, home, step
FROM sharding_decide_v1(
    %(term)s, %(types)s::text[], %(shards)s::integer[], %(expected)s::bigint[], %(epochs)s::bigint[],
    %(homes)s::text[], %(steps)s::text[], %(journals)s::text[]);
