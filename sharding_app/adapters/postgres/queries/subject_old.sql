-- A page of keys that the first secret has not wrapped.
SELECT id, wrapped FROM sharding_subject
WHERE wrapped IS NOT NULL AND id > %(after)s::bytea AND substring(wrapped FROM 2 FOR 4) <> %(name)s::bytea
ORDER BY id
LIMIT %(limit)s;
