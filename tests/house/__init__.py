"""The house: settings, README, what may import what."""
