-- Types of which the last import has begun and not ended: the timeline has its beginning, and behind it neither its end nor a
-- removal of the type's journal. The import of one entity of a file ends no import of all.
SELECT DISTINCT begun.subject
FROM (
    SELECT action, subject, max(id) AS id FROM sharding_decision
    WHERE action IN ('journal_importing', 'entity_importing') GROUP BY action, subject
) begun
WHERE NOT EXISTS (
    SELECT FROM sharding_decision ended
    WHERE ended.action IN (replace(begun.action, 'importing', 'imported'), 'journal_imported', 'journal_removed')
        AND ended.subject = begun.subject AND ended.id > begun.id)
ORDER BY begun.subject LIMIT 100;
