"""What entities have set in motion: durable messages and timers, from their commit to their end."""
