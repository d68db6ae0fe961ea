-- The row stays, so that no other key is made for the subject. Erasing again changes nothing.
INSERT INTO sharding_subject AS s (id, mark, wrapped, erased_at)
VALUES (%(row)s, %(mark)s, NULL, now())
ON CONFLICT (mark) DO UPDATE SET wrapped = NULL, erased_at = coalesce(s.erased_at, now())
RETURNING s.id, s.finished_at IS NOT NULL;
