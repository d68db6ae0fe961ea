"""The commands: what they print, what they start, how they end."""
