"""The cluster over HTTP: health, metrics, and what the dashboard shows live. Nothing runs between requests."""
