SELECT id, mark, wrapped FROM sharding_subject WHERE mark = ANY (%(marks)s::bytea[]);
