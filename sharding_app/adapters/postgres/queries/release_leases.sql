-- Without a token: a request had no answer, so whatever of it took effect is given back.
UPDATE sharding_lease l SET owner = NULL, acquired_at = NULL, expires_at = NULL
FROM (
    SELECT h.name FROM sharding_lease h
    JOIN unnest(%(names)s::text[], %(tokens)s::bigint[]) AS held (name, token)
        ON held.name = h.name AND (held.token IS NULL OR held.token = h.token)
    WHERE h.owner = %(owner)s
    ORDER BY h.name FOR NO KEY UPDATE OF h
) mine
WHERE l.name = mine.name;
