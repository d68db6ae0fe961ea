"""Rows of a small cluster."""

from tests.support.cluster_rows import rows

__all__ = ["rows"]
