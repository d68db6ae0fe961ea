"""Template filters of the auction house."""
