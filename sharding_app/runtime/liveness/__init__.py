"""The lifeline, the watchdog, and the node's own echo."""
