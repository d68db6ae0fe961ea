"""The database engine of `embedded.database`: Django looks for it here, in `base`."""
