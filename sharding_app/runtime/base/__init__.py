"""Shared by all rooms of the runtime: settings, interfaces, the clock, threads."""
