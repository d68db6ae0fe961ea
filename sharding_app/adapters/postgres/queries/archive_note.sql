INSERT INTO sharding_decision (action, subject, detail) VALUES (%(action)s, %(type)s, %(detail)s);
