"""The cluster of these tests hosts the message-style entities."""

from tests.unit.runtime.counter_cluster import cluster

__all__ = ["cluster"]
