"""Projections: which transactions a reader has seen, and the steps of one turn of its work."""
