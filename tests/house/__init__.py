"""The house: servers, settings, README, what may import what."""
