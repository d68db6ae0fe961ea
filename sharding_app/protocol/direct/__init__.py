"""Connections between two processes: where frames end, and the proof that both know a key."""
