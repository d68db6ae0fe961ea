SELECT name, workers, workers_wanted, workers_revision FROM sharding_type WHERE workers > 0 ORDER BY name;
