-- The place of a journal's database, or this one if there is none by that name yet. If another journal has this one, its name
-- comes back instead. Nothing comes back from the first look while another process stores it: the second one sees that.
WITH made AS (
    INSERT INTO sharding_journal (name, place) VALUES (%(name)s, %(place)s)
    ON CONFLICT DO NOTHING
    RETURNING name, place
), known AS (
    SELECT name, place FROM made
    UNION ALL
    SELECT name, place FROM sharding_journal WHERE name = %(name)s OR place = %(place)s
)
SELECT name, place FROM known ORDER BY name = %(name)s LIMIT 1;
