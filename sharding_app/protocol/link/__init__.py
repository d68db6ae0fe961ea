"""Ordered, bounded links between two processes over a lossy layer."""
