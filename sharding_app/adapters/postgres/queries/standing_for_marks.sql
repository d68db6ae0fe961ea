-- Rows of messages as the home of a mark looks for them: also those that a move has taken out, and may put back.
SELECT id, parked, seconds FROM sharding_standing_v1(%(messages)s::text[]);
