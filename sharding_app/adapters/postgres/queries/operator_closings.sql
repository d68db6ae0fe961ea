-- How often shards of each type were closed for a move to another journal, or opened again.
SELECT t.id, t.closings FROM sharding_type t;
