-- Timers with these keys that were set from outside, which lie in the cluster's own database wherever their shards do.
SELECT m.entity, m.key, m.id, m.at
FROM unnest(%(entities)s::text[], %(keys)s::text[]) AS own (entity, key)
JOIN sharding_message m ON m.type_id = %(type_id)s AND m.entity = own.entity AND m.key = own.key
WHERE m.epoch IS NULL
ORDER BY m.id
FOR UPDATE OF m;
