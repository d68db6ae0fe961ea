SELECT type, workers, wanted, revision FROM sharding_put_in_force_v1(%(term)s, %(type)s, %(revision)s);
