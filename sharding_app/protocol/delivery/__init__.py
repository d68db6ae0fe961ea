"""Delivery of durable messages and timers, from their commit to their end."""
