"""The asking side of a process: where shards live, and calls under way."""
