WITH asked AS (
    UPDATE sharding_node SET asked = %(request)s::text, updated_at = now()
    WHERE incarnation = ANY (%(incarnations)s::text[])
    RETURNING incarnation, name
), noted AS (
    INSERT INTO sharding_decision (action, subject, detail)
    SELECT coalesce('asked_to_' || %(request)s::text, 'asking_cancelled'), string_agg(name, ', ' ORDER BY name),
        format('by %%s', %(by)s::text)
    FROM asked WHERE %(by)s::text <> '' HAVING count(*) > 0
)
SELECT incarnation FROM asked;
