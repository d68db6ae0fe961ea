DELETE FROM sharding_node WHERE incarnation = %(incarnation)s;
