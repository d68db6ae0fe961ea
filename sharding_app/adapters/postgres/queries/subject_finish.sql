WITH finished AS (
    UPDATE sharding_subject SET finished_at = now() WHERE mark = %(mark)s AND finished_at IS NULL RETURNING 1
)
INSERT INTO sharding_decision (action, subject, detail)
SELECT 'subject_erased', 'personal data', %(detail)s::text FROM finished
RETURNING 1;
