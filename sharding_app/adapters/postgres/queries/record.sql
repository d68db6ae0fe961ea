WITH added AS (
    INSERT INTO sharding_decision (term, action, subject, detail)
    SELECT (SELECT term FROM sharding_coordinator), d.action, d.subject, d.detail
    FROM unnest(%(actions)s::text[], %(subjects)s::text[], %(details)s::text[]) AS d (action, subject, detail)
    RETURNING id
)
DELETE FROM sharding_decision WHERE id <= (SELECT max(id) FROM added) - %(kept)s;
