"""A process of the cluster, a node, and its life."""
