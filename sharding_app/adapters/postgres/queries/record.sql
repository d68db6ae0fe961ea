-- Lines of the timeline. Of each action the newest are kept: a storm of one kind pushes out no other. Lines that this
-- statement adds are not seen by its deletion, so they are subtracted from what is kept.
WITH RECURSIVE added AS (
    INSERT INTO sharding_decision (term, action, subject, detail)
    SELECT (SELECT term FROM sharding_coordinator), d.action, d.subject, d.detail
    FROM unnest(%(actions)s::text[], %(subjects)s::text[], %(details)s::text[]) AS d (action, subject, detail)
    RETURNING action
), known AS (
    (SELECT d.action FROM sharding_decision d ORDER BY d.action LIMIT 1)
    UNION ALL
    SELECT (SELECT d.action FROM sharding_decision d WHERE d.action > known.action ORDER BY d.action LIMIT 1)
    FROM known
    WHERE known.action IS NOT NULL
), bound AS (
    SELECT known.action, (
        SELECT d.id FROM sharding_decision d
        WHERE d.action = known.action
        ORDER BY d.id DESC
        OFFSET greatest(%(kept)s - (SELECT count(*) FROM added a WHERE a.action = known.action), 0) LIMIT 1) AS id
    FROM known
    WHERE known.action IS NOT NULL
)
DELETE FROM sharding_decision d USING bound WHERE d.action = bound.action AND d.id <= bound.id;
