"""Strategies: where shards go."""
