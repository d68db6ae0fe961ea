"""Values to bytes and back: arguments, results, records, states."""
