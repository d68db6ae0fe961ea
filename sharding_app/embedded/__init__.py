"""Servers in the box: PostgreSQL and Valkey (which speaks Redis) out of wheels, for development and
tests.

::

    DATABASES = {"default": embedded.database(BASE_DIR / ".data")}

That line starts nothing. The servers start when a process first connects, on the loopback, with
random ports and passwords that the folder keeps. They end by themselves a few seconds after the
last process that used them, however it ended. The wheels come with the extra `embedded`.
"""

from __future__ import annotations

from sharding_app.embedded.errors import ServersError
from sharding_app.embedded.folder import Access, DataFolder
from sharding_app.embedded.own import OwnPostgres, OwnRedis, OwnServer
from sharding_app.embedded.secret import Secret
from sharding_app.embedded.settings import channel_layer, database, started
from sharding_app.embedded.starting import Servers, ensure_servers

__all__ = [
    "Access",
    "DataFolder",
    "OwnPostgres",
    "OwnRedis",
    "OwnServer",
    "Secret",
    "Servers",
    "ServersError",
    "channel_layer",
    "database",
    "ensure_servers",
    "started",
]
