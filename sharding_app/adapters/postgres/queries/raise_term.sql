-- Waits for the former coordinator's write under way, if there is one: it holds the row FOR SHARE. In another lineage than
-- that of the last election an era begins (protocol/coordinator/terms.py has the same): the numbers in this row may have been given out since.
-- So may revisions of numbers of shards: where there are further journals, the present ones get higher ones. Where there are
-- none, none has to be read for rows of shards that are lost here.
WITH elected AS (
    INSERT INTO sharding_coordinator AS c (term, incarnation, elected_at, lineage)
    SELECT 1, %(incarnation)s, now(), server.system || '/' || server.timeline
    FROM (SELECT @server@) AS server (started, timeline, system)
    ON CONFLICT (id) DO UPDATE SET
        term = CASE
            WHEN COALESCE(c.lineage, EXCLUDED.lineage) = EXCLUDED.lineage THEN c.term
            ELSE greatest(
                ((c.term >> 16) + 1) << 16,
                (extract(epoch FROM now())::bigint << 20) + ((split_part(EXCLUDED.lineage, '/', 2)::bigint & 15) << 16))
        END + 1,
        incarnation = EXCLUDED.incarnation, elected_at = now(), lineage = EXCLUDED.lineage,
        journals_read = CASE
            WHEN COALESCE(c.lineage, EXCLUDED.lineage) = EXCLUDED.lineage OR EXISTS (SELECT FROM sharding_journal)
                THEN c.journals_read
            ELSE greatest(
                (c.term >> 16) + 1,
                (extract(epoch FROM now())::bigint << 4) + (split_part(EXCLUDED.lineage, '/', 2)::bigint & 15))
        END
    RETURNING c.term
), renumbered AS (
    UPDATE sharding_type t SET shards_revision = greatest(t.shards_revision + 1, e.term)
    FROM elected e
    WHERE e.term >> 16 > 0 AND e.term & 65535 = 1 AND EXISTS (SELECT FROM sharding_journal)
)
SELECT term FROM elected;
