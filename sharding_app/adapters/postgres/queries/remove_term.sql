UPDATE sharding_coordinator SET term = term + 1, incarnation = NULL;
