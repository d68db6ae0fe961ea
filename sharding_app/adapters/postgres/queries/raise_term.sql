-- Waits for the former coordinator's write under way, if there is one: it holds the row FOR SHARE.
INSERT INTO sharding_coordinator AS c (term, incarnation, elected_at)
VALUES (1, %(incarnation)s, now())
ON CONFLICT (id) DO UPDATE SET term = c.term + 1, incarnation = EXCLUDED.incarnation, elected_at = now()
RETURNING c.term;
