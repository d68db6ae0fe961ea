"""A small shop whose carts are sharded entities."""
