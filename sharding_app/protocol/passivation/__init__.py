"""Which entities leave the memory when there are too many."""
