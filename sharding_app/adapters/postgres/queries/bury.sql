SELECT sharding_bury_v1(%(term)s, %(incarnation)s);
