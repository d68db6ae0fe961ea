"""What stands in `benchmarks/`, without what only its peers need."""
