-- Only what is wanted is written here. The coordinator puts it in force once the old workers have stopped.
WITH wished AS (
    UPDATE sharding_type SET workers_wanted = %(workers)s::integer
    WHERE name = %(type)s AND workers > 0
    RETURNING name, workers, workers_wanted, workers_revision
), noted AS (
    INSERT INTO sharding_decision (action, subject, detail)
    SELECT 'rescale_asked', name, format('%%s workers, by %%s', workers_wanted, %(by)s::text)
    FROM wished WHERE %(by)s::text <> ''
)
SELECT name, workers, workers_wanted, workers_revision FROM wished;
