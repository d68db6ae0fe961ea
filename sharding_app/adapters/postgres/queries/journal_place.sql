-- The place of a journal's database, or this one if there is none by that name yet. Nothing comes back from the first look
-- while another process stores it: the second one sees that.
WITH made AS (
    INSERT INTO sharding_journal (name, place) VALUES (%(name)s, %(place)s)
    ON CONFLICT (name) DO NOTHING
    RETURNING place
)
SELECT place FROM made
UNION ALL
SELECT place FROM sharding_journal WHERE name = %(name)s;
