"""Projections on the nodes: the workers that take their turns, and how commits wake them."""
