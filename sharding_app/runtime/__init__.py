"""The engine room: asyncio shells around the machines. Nothing of Django, Postgres or Channels."""
