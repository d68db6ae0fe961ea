"""Entries of DATABASES and CHANNEL_LAYERS that lead to the servers of a data folder.

An entry of DATABASES is marked with its folder. Each process starts the servers before its first
connection to it: Django's own in `engine`, those of the cluster in `wiring`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any

from sharding_app.embedded.entries import databases, redis_address, redis_hosts
from sharding_app.embedded.folder import DATABASE, USER, DataFolder
from sharding_app.embedded.ports import LOOPBACK
from sharding_app.embedded.secret import Secret
from sharding_app.embedded.starting import start

ENGINE = "sharding_app.embedded.engine"
_FOLDER = "EMBEDDED"
"""The key of an entry that names its folder. Django leaves keys alone that it does not know."""

_lock = Lock()
_ports: dict[tuple[int, Path], int] = {}
"""The port of PostgreSQL by process and folder, once this process uses it: a fork is a user of its
own.
"""


def database(folder: Path, *, durable: bool = True) -> dict[str, Any]:
    """Return an entry of DATABASES for the folder's PostgreSQL. Starts nothing.

    Without `durable` the server of a new folder does not wait for the disk. That is for tests: a
    power cut loses the data.
    """
    access = DataFolder(folder, durable=durable).access()
    entry = {
        "ENGINE": ENGINE,
        "NAME": DATABASE,
        "USER": USER,
        "PASSWORD": Secret(access.postgres_password),
        "HOST": LOOPBACK,
        "PORT": str(access.postgres_port),
        _FOLDER: str(Path(folder).absolute()),
    }
    databases.setdefault(Path(folder).absolute(), []).append(entry)
    return entry


def channel_layer(folder: Path) -> dict[str, Any]:
    """Return an entry of CHANNEL_LAYERS for the folder's Redis, which starts with its PostgreSQL.
    Needs the extra `redis`.
    """
    access = DataFolder(folder).access()
    host = {
        "address": redis_address(access),
        "password": Secret(access.redis_password),
        # redis-py 8 gives up on a socket that is silent for five seconds.
        "socket_timeout": None,
    }
    redis_hosts.setdefault(Path(folder).absolute(), []).append(host)
    return {"BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer", "CONFIG": {"hosts": [host]}}


def started(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an entry of DATABASES whose server takes connections: the entry itself, unless
    `database` made it.

    A folder's port changes where another program has taken it, so the entry's own may be out of
    date.
    """
    folder = entry.get(_FOLDER)
    if folder is None:
        return entry
    place = os.getpid(), Path(folder)
    with _lock:
        if place not in _ports:
            servers = {"postgres", "redis"} if place[1] in redis_hosts else {"postgres"}
            start(place[1], frozenset(servers), announce=True)
            _ports[place] = DataFolder(place[1]).access().postgres_port
        return {**entry, "PORT": str(_ports[place])}


def lead_elsewhere(entry: dict[str, Any], port: int) -> None:
    """Have an entry of DATABASES lead to this port, whatever port its own server has."""
    entry.pop(_FOLDER, None)
    entry["PORT"] = str(port)


def _renew_lock() -> None:
    """Give a forked child a lock of its own: a thread of its parent may hold the other one."""
    global _lock
    _lock = Lock()


os.register_at_fork(after_in_child=_renew_lock)
