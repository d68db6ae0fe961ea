INSERT INTO sharding_decision (action, subject, detail)
VALUES (%(action)s, 'personal data', %(detail)s::text)
RETURNING 1;
