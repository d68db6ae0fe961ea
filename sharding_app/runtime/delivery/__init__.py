"""Deliveries of durable messages and timers, at the homes of their owners."""
