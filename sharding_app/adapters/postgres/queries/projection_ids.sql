SELECT r.id FROM sharding_projection r;
