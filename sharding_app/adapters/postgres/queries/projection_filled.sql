-- The page of the fill to which each entity belongs: the first that ends behind it, else the one without an end.
SELECT wanted.type_id, wanted.entity, coalesce(
    (SELECT f.view::text FROM sharding_filled f
        WHERE f.projection_id = %(id)s AND f.journal = %(journal)s AND f.type_id = wanted.type_id AND f.upto >= wanted.entity
            AND wanted.slice BETWEEN f.first_slice AND f.last_slice
        ORDER BY f.upto LIMIT 1),
    (SELECT f.view::text FROM sharding_filled f
        WHERE f.projection_id = %(id)s AND f.journal = %(journal)s AND f.type_id = wanted.type_id AND f.upto IS NULL
            AND wanted.slice BETWEEN f.first_slice AND f.last_slice
        LIMIT 1))
FROM unnest(%(types)s::integer[], %(entities)s::text[], %(slices)s::integer[]) AS wanted (type_id, entity, slice);
