"""This process on a real PostgreSQL and a real Redis. The folders are those of `sharding_app`."""
