UPDATE sharding_lease l SET owner = NULL, acquired_at = NULL, expires_at = NULL
FROM (
    SELECT h.name FROM sharding_lease h
    JOIN unnest(%(names)s::text[], %(tokens)s::bigint[]) AS held (name, token) USING (name, token)
    WHERE h.owner = %(owner)s
    ORDER BY h.name FOR NO KEY UPDATE OF h
) mine
WHERE l.name = mine.name;
