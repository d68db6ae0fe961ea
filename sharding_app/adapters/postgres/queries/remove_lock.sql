-- No node joins while data is removed.
LOCK TABLE sharding_node IN SHARE ROW EXCLUSIVE MODE;
