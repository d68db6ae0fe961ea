"""The implementations of the ports: Postgres, the channel layer, and a fake of both in memory."""
