"""The demo's auction house, without its app: its singleton would work in the clusters of others."""
