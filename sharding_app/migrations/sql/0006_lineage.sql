-- In which lineage of the server a node's locks were taken, and the last coordinator elected. Small tables alone.

ALTER TABLE @schema@.sharding_node ADD COLUMN server_system text COLLATE "C";

ALTER TABLE @schema@.sharding_coordinator ADD COLUMN lineage text COLLATE "C";
