-- Rows of some ranges, and a number that depends on all of them, for a comparison with the copy.
SELECT count(*), coalesce(sum(hashtextextended(ROW(e.entity, e.seq, e.state::text, e.at)::text, 0)), 0)::text
FROM unnest(%(entities)s::text[], %(firsts)s::bigint[], %(lasts)s::bigint[]) AS range (entity, first, last)
JOIN sharding_snapshot e ON e.type_id = %(type_id)s AND e.entity = range.entity AND e.seq BETWEEN range.first AND range.last;
