"""Rows of a small cluster."""

from tests.integration.operations.old_rows import old_rows
from tests.support.cluster_rows import rows

__all__ = ["old_rows", "rows"]
