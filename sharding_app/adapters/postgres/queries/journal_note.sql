INSERT INTO sharding_decision (action, subject, detail)
VALUES (%(action)s, %(type)s, format('%%s events, by %%s', %(events)s::bigint, %(by)s::text));
