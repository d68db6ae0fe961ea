"""Entities whose durable messages and timers are watched on real nodes."""
