"""`SHARDING = {...}`: the keys, and how they are read."""
