DROP FUNCTION @schema@.sharding_locate_v1(text, integer[], text[]);
ALTER TABLE @schema@.sharding_node DROP COLUMN asked;
ALTER TABLE @schema@.sharding_type DROP COLUMN locations_change;
DROP TABLE @schema@.sharding_location;
