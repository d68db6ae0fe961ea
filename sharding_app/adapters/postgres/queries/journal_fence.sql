-- Takes all shards of the type from their homes, and notes the intent before anything is deleted.
WITH fenced AS (
    UPDATE sharding_shard SET epoch = epoch + 1, home = NULL, step = 'stopped', updated_at = now()
    WHERE type_id = %(type_id)s
)
INSERT INTO sharding_decision (action, subject, detail)
VALUES ('journal_removing', %(type)s, format('by %%s', %(by)s::text));
