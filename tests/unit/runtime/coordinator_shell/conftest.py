"""The cluster of these tests hosts entities whose places the tests choose."""

from tests.unit.runtime.place_cluster import cluster

__all__ = ["cluster"]
