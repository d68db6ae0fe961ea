INSERT INTO sharding_position AS p (
    projection_id, journal, first_slice, last_slice, position, turn, events, fill_type, fill_after, fill_until, secured)
SELECT %(id)s, %(journal)s, n.first, n.last, n.position::pg_snapshot, n.turn, n.events, n.fill_type, n.fill_after, n.fill_until::text::xid8,
    %(secured)s::text::xid8
FROM unnest(
    %(firsts)s::integer[], %(lasts)s::integer[], %(positions)s::text[], %(turns)s::bigint[], %(events)s::bigint[],
    %(fill_types)s::integer[], %(fill_afters)s::text[], %(fill_untils)s::bigint[])
    AS n (first, last, position, turn, events, fill_type, fill_after, fill_until)
ON CONFLICT (projection_id, journal, first_slice) DO UPDATE SET
    last_slice = EXCLUDED.last_slice, position = EXCLUDED.position, turn = EXCLUDED.turn, events = EXCLUDED.events,
    fill_type = EXCLUDED.fill_type, fill_after = EXCLUDED.fill_after, fill_until = EXCLUDED.fill_until,
    secured = EXCLUDED.secured, at = clock_timestamp();
