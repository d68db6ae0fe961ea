"""The engine room: asyncio shells around the machines. No Django, Postgres or Channels here."""
