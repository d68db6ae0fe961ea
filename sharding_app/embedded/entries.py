"""The entries of settings that this process has made, by folder; they follow the folder's ports.

A port changes where another program has taken it. An entry that did not follow would show that
program a password.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sharding_app.embedded.folder import Access
from sharding_app.embedded.ports import LOOPBACK

databases: dict[Path, list[dict[str, Any]]] = {}
"""Entries of DATABASES."""
redis_hosts: dict[Path, list[dict[str, Any]]] = {}
"""Hosts of channel layers."""


def redis_address(access: Access) -> str:
    """Return the address of the folder's Redis, without its password."""
    return f"redis://{LOOPBACK}:{access.redis_port}/0"


def follow(folder: Path, access: Access) -> None:
    """Write the ports that count now into the entries of a folder."""
    for entry in databases.get(folder, ()):
        entry["PORT"] = str(access.postgres_port)
    for host in redis_hosts.get(folder, ()):
        host["address"] = redis_address(access)
