"""The documents: what they show is executed as it stands."""
