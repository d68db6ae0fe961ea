SELECT sharding_journals_to_read_v1();
