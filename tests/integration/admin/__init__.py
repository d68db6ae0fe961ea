"""The admin: what it shows, to whom, and what it costs the database."""
