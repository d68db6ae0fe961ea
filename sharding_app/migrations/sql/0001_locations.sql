-- The type's row comes first: changes of one type follow each other, so that their numbers tell what a reader has seen.
CREATE FUNCTION @schema@.sharding_locate_v1(type_name text, shards integer[], nodes text[])
RETURNS boolean LANGUAGE plpgsql AS $locate$
DECLARE
    number integer;
BEGIN
    UPDATE @schema@.sharding_type t SET locations_change = t.locations_change + 1
        WHERE t.name = type_name
        RETURNING t.id INTO number;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO @schema@.sharding_location (type_id, shard, node)
        SELECT number, said.shard, said.node FROM unnest(shards, nodes) AS said (shard, node)
        ON CONFLICT (type_id, shard) DO UPDATE SET node = EXCLUDED.node, at = now();
    RETURN true;
END
$locate$;
