"""Rows of a small cluster, and people with various permissions."""

from tests.support.cluster_rows import person, root, rows

__all__ = ["person", "root", "rows"]
