-- The wrapped keys of these rows. That of an erased subject is gone.
SELECT id, wrapped FROM sharding_subject WHERE id = ANY (%(rows)s::bytea[]) AND wrapped IS NOT NULL;
