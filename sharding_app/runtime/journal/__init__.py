"""Writing to the journal in groups, and recovery from it."""
