-- Stores where a journal lies now, and notes who said so.
WITH stored AS (
    INSERT INTO sharding_journal (name, place) VALUES (%(name)s, %(place)s)
    ON CONFLICT (name) DO UPDATE SET place = EXCLUDED.place, at = now()
    RETURNING name
)
INSERT INTO sharding_decision (action, subject, detail)
SELECT 'journal_adopted', stored.name, format('at %%s, by %%s', %(place)s::text, %(by)s::text) FROM stored
RETURNING subject;
