"""The demo site: an auction house and a small shop, with servers where a machine has none."""
