-- A type as it is hosted, for a message from outside.
SELECT id, number_of_shards, shards_wanted, groups_resized, shards_revision, extractor FROM sharding_type WHERE name = %(name)s AND NOT changeable;
