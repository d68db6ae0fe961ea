"""The shards and entities that live in a node."""
