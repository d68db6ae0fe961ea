SELECT sharding_bury_v2(%(term)s, %(incarnation)s);
