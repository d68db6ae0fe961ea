SELECT slot_name, active, xmin IS NOT NULL OR catalog_xmin IS NOT NULL OR restart_lsn IS NOT NULL
FROM pg_replication_slots LIMIT 100;
