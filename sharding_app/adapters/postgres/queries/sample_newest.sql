-- Entities of the type among the rows that were written last.
SELECT DISTINCT entity FROM (
    SELECT type_id, entity FROM sharding_event
    WHERE ctid >= %(place)s::tid AND type_id = ANY (ARRAY[%(type_id)s, %(type_id)s]::integer[])
    LIMIT %(rows)s
) AS written WHERE type_id = %(type_id)s;
