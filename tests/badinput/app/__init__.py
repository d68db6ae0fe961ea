"""Entities that do what they should not."""
