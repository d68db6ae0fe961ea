SELECT sharding_bury_v3(%(term)s, %(incarnation)s);
