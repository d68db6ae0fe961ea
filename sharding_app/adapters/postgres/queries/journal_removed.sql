INSERT INTO sharding_decision (action, subject, detail)
VALUES ('journal_removed', %(type)s, format('%%s events', %(events)s::bigint));
