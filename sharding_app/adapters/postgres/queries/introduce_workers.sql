-- The first node says how many workers a set has. From then on the row says it: a rescale outlives every restart.
UPDATE sharding_type t SET workers = given.number, workers_wanted = given.number
FROM unnest(%(names)s::text[], %(numbers)s::integer[]) AS given (name, number)
WHERE t.name = given.name AND t.workers = 0;
