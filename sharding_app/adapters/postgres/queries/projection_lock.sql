-- All positions of a version, in all journals and in one order: turns under way are waited for, and none begins.
SELECT p.journal, p.first_slice FROM sharding_position p
WHERE p.projection_id = %(id)s
ORDER BY p.journal, p.first_slice
FOR UPDATE;
