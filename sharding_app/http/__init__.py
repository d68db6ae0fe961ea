"""The cluster over HTTP: health, metrics, and what the dashboard shows live. Nothing runs while nobody asks."""
