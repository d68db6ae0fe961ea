"""Who lives, who may handle messages, and which locks show it."""
