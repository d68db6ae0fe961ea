-- What is due in some shards, in the order in which it goes out. A message waits for an earlier one of its owner to its
-- target that was set aside: it comes with a page after the one that holds that, unless that one is held alone. Those from
-- outside are a pair of their own. There may be more after a page with a row that others wait for. The first row of the
-- answer names the pairs that wait for one beyond the horizon, and one more than `pairs` if there are as many.
-- A time that another writer has stored, and that has no date of Python's, is answered as one far away: it must not keep the
-- page's other rows from their homes.
-- A page ends where its arguments get too large, and has at least one row if there is any. Of each shard it has a few rows
-- only (`each`), so that no more is read than is needed. The first row of the answer names the shards that may have more, and
-- the time in microseconds at which the next row of a shard is due.
-- Of a shard that lies in another journal only messages from outside are here. Others are copies that a move has made, and they
-- are no messages before it has come to its switch.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now, clock_timestamp() + %(horizon)s * interval '1 second' AS horizon
), asked AS MATERIALIZED (
    SELECT asked.*, COALESCE(s.journal = '', true) AS here
    FROM unnest(%(types)s::integer[], %(shards)s::integer[]) AS asked (type_id, shard)
    LEFT JOIN sharding_shard s ON s.type_id = asked.type_id AND s.shard = asked.shard
), held AS MATERIALIZED (
    SELECT held.id FROM unnest(%(held)s::text[]) AS held (id)
), found AS MATERIALIZED (
    SELECT m.*, row_number() OVER in_order AS place, sum(octet_length(m.args)) OVER in_order AS size
    FROM clock CROSS JOIN asked
    CROSS JOIN LATERAL (
        SELECT m.*
        FROM sharding_message m
        WHERE m.type_id = asked.type_id AND m.shard = asked.shard AND NOT m.parked AND m.due <= clock.horizon
            AND (asked.here OR m.epoch IS NULL)
            AND m.id NOT IN (SELECT held.id FROM held)
            AND (m.key IS NOT NULL OR NOT EXISTS (
                SELECT FROM sharding_message aside
                WHERE aside.type_id = m.type_id AND aside.shard = m.shard AND aside.entity = m.entity
                    AND aside.target_type = m.target_type AND aside.target = m.target
                    AND (aside.epoch IS NULL) = (m.epoch IS NULL)
                    AND aside.key IS NULL AND aside.error <> '' AND NOT aside.parked
                    AND (aside.seq, aside.position) < (m.seq, m.position)
                    AND (aside.id NOT IN (SELECT held.id FROM held) OR aside.id = ANY (%(alone)s::text[]))))
        ORDER BY m.due, m.seq, m.position
        LIMIT %(each)s
    ) m
    WINDOW in_order AS (ORDER BY m.due, m.seq, m.position, m.id)
), page AS MATERIALIZED (
    SELECT * FROM found
    WHERE place <= %(limit)s AND (place = 1 OR size <= %(bytes)s)
), later AS MATERIALIZED (
    -- It depends on the clock: as a part of the SELECT it would be computed for each row of the page.
    SELECT asked.type_id, asked.shard,
        (extract(epoch FROM least(first.due, '9999-01-01 00:00Z')) * 1000000)::bigint AS due
    FROM clock CROSS JOIN asked
    CROSS JOIN LATERAL (
        SELECT m.due FROM sharding_message m
        WHERE m.type_id = asked.type_id AND m.shard = asked.shard AND NOT m.parked AND m.due > clock.horizon
            AND (asked.here OR m.epoch IS NULL)
            AND m.id NOT IN (SELECT held.id FROM held)
        ORDER BY m.due
        LIMIT 1
    ) first
), more AS MATERIALIZED (
    SELECT found.type_id, found.shard
    FROM found LEFT JOIN page ON page.id = found.id
    GROUP BY found.type_id, found.shard
    HAVING count(*) >= %(each)s OR count(*) > count(page.id) OR bool_or(page.key IS NULL AND page.error <> '')
), beyond AS MATERIALIZED (
    SELECT m.type_id, m.shard, m.owner, m.target_type, m.target
    FROM clock CROSS JOIN asked
    CROSS JOIN LATERAL (
        SELECT DISTINCT m.type_id, m.shard, CASE WHEN m.epoch IS NULL THEN '' ELSE m.entity END AS owner,
            m.target_type, m.target
        FROM sharding_message m
        WHERE m.type_id = asked.type_id AND m.shard = asked.shard AND m.key IS NULL AND m.error <> '' AND NOT m.parked
            AND m.due > clock.horizon AND m.id NOT IN (SELECT held.id FROM held)
            AND (asked.here OR m.epoch IS NULL)
        LIMIT %(pairs)s + 1
    ) m
    LIMIT %(pairs)s + 1
)
SELECT clock.now,
    CASE WHEN COALESCE(page.place, 1) = 1 THEN (
        SELECT json_agg(json_build_array(m.type_id, m.shard)) FROM more m
    ) END,
    CASE WHEN COALESCE(page.place, 1) = 1 THEN (
        SELECT json_agg(json_build_array(l.type_id, l.shard, l.due)) FROM later l
    ) END,
    CASE WHEN COALESCE(page.place, 1) = 1 THEN (
        SELECT json_agg(json_build_array(b.type_id, b.shard, b.owner, b.target_type, b.target)) FROM beyond b
    ) END,
    page.id, page.type_id, page.shard, page.entity, page.seq, page.position, page.target_type, page.target,
    page.command, page.args, greatest(page.due, '0002-01-01 00:00Z'), page.key, page.every, page.reply_to,
    page.on_failure, page.failures, CASE WHEN page.occasion >= '0002-01-01 00:00Z' THEN page.occasion END, page.epoch IS NULL
FROM clock LEFT JOIN page ON true
ORDER BY page.place;
