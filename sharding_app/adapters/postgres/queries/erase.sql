-- One piece of an entity, from its end: an erasure that is interrupted leaves a history without a gap.
-- The holder of the shard erases: a delete fires no fence, so the row is locked and compared here. The entity's messages
-- are locked before, in the order in which appends lock. One that was stored by a former number of shards goes too.
WITH mine AS MATERIALIZED (
    SELECT m.id FROM sharding_message m
    WHERE m.type_id = %(type_id)s AND m.entity = %(entity)s
        AND m.shard = ANY (%(shards)s::integer[] || sharding_former_shards_v1(%(type_id)s, %(entity)s))
    ORDER BY m.id
    FOR UPDATE
), held AS MATERIALIZED (
    SELECT t.id, t.name, s.followed AND s.journal = '' AS followed
    FROM sharding_shard s
    JOIN sharding_type t ON t.id = s.type_id
    WHERE s.type_id = %(type_id)s AND s.shard = %(shard)s AND s.epoch = %(epoch)s
        AND (SELECT count(*) FROM mine) >= 0
    FOR SHARE OF s
), bound AS MATERIALIZED (
    SELECT (
        SELECT e.seq FROM sharding_event e
        WHERE e.type_id = %(type_id)s AND e.entity = %(entity)s AND EXISTS (SELECT FROM held)
        ORDER BY e.seq DESC OFFSET %(at_most)s LIMIT 1) AS seq
), whole AS MATERIALIZED (
    SELECT held.id FROM held, bound WHERE bound.seq IS NULL
), events AS (
    DELETE FROM sharding_event e USING held, bound
    WHERE e.type_id = %(type_id)s AND e.entity = %(entity)s AND e.seq > coalesce(bound.seq, 0) RETURNING 1
), snapshots AS (
    -- A snapshot beyond the remaining events would bring all of them back, and leave a gap behind them.
    DELETE FROM sharding_snapshot s USING held, bound
    WHERE s.type_id = %(type_id)s AND s.entity = %(entity)s AND s.seq > coalesce(bound.seq, 0) RETURNING 1
), remembered AS (
    DELETE FROM sharding_remembered r USING whole WHERE r.type_id = whole.id AND r.entity = %(entity)s RETURNING 1
), messages AS (
    DELETE FROM sharding_message m USING mine, whole WHERE m.id = mine.id RETURNING 1
), told AS (
    -- Projections learn what is gone before an event of the same number comes. Of an entity that lies in another journal,
    -- that one tells them: word from here may come behind the next event there, and would take that event's rows away.
    INSERT INTO sharding_change (type_id, events, entities, slices, firsts, lasts, erased)
    SELECT held.id, 0, ARRAY[%(entity)s::text], ARRAY[get_byte(sha256(convert_to(%(entity)s::text, 'UTF8')), 0) & 127],
        ARRAY[coalesce(bound.seq, 0) + 1], ARRAY[coalesce(bound.seq, 0) + 1], true
    FROM held, bound WHERE held.followed
), counted AS (
    SELECT
        (SELECT count(*) FROM events) AS events, (SELECT count(*) FROM snapshots) AS snapshots,
        (SELECT count(*) FROM remembered) AS remembered, (SELECT count(*) FROM messages) AS messages
), noted AS (
    INSERT INTO sharding_decision (action, subject, detail)
    SELECT 'entity_erased', held.name, format(
        '%%s events, %%s snapshots, by %%s', %(events_before)s::bigint + events,
        %(snapshots_before)s::bigint + snapshots, %(by)s::text)
    FROM counted, held WHERE EXISTS (SELECT FROM whole)
)
SELECT events, snapshots, remembered, messages, EXISTS (SELECT FROM whole) FROM counted WHERE EXISTS (SELECT FROM held);
