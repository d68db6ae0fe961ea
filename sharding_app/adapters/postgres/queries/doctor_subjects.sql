-- Of some keys of personal data, those that no known secret has wrapped; and erasures that did not come to their end.
SELECT
    (SELECT count(*) FROM (SELECT s.wrapped FROM sharding_subject s WHERE s.wrapped IS NOT NULL LIMIT 1000) sample
     WHERE NOT (substring(sample.wrapped FROM 2 FOR 4) = ANY (%(names)s::bytea[]))),
    (SELECT count(*) FROM (
        SELECT FROM sharding_subject s
        WHERE s.erased_at < now() - interval '10 minutes' AND s.finished_at IS NULL LIMIT 1000) unfinished);
