SELECT sharding_restore_shards_v1(
    %(term)s, %(read)s::text[], %(names)s::text[], %(shards)s::integer[], %(epochs)s::bigint[], %(journals)s::text[],
    %(at_home)s::boolean[], %(numbers)s::integer[], %(wanted)s::integer[]);
