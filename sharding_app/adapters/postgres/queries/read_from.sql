SELECT seq, name, version, payload
FROM sharding_event
WHERE type_id = %(type_id)s AND entity = %(entity)s AND seq > %(after)s
ORDER BY seq;
