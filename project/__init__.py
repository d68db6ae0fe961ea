"""The demo site: a small shop, and servers of its own for machines that have none."""
