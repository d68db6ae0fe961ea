SELECT sharding_restore_shards_v1(
    %(term)s, %(read)s::text[], %(names)s::text[], %(shards)s::integer[], %(epochs)s::bigint[], %(journals)s::text[],
    %(steps)s::text[], %(numbers)s::integer[], %(wanted)s::integer[]);
