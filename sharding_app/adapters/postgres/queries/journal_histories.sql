-- Which of these types have a history here.
SELECT given.id
FROM unnest(%(type_ids)s::integer[]) AS given (id)
WHERE EXISTS (SELECT FROM sharding_event e WHERE e.type_id = given.id)
    OR EXISTS (SELECT FROM sharding_snapshot s WHERE s.type_id = given.id);
