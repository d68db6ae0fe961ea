"""Who uses the servers of a data folder: one file for each process, named by its pid, with its
start time inside.

No process has to say goodbye: a file whose process is gone counts for nothing and is removed.
"""

from __future__ import annotations

import os

from sharding_app.embedded.errors import ServersError
from sharding_app.embedded.folder import DataFolder
from sharding_app.embedded.processes import ProcessId, identify, living


def register(folder: DataFolder, servers: frozenset[str]) -> None:
    """Enter this process as a user of these servers. The folder's lock must be held."""
    me = identify(os.getpid())
    if me is None:
        raise ServersError("This process cannot see itself: is `ps` installed?")
    file = folder.holders / f"{me.pid}.json"
    before = folder.read(file)
    if before is not None and before["started"] == me.started:
        servers |= set(before["servers"])
    folder.write(file, {"started": me.started, "servers": sorted(servers)})


def withdraw(folder: DataFolder) -> None:
    """Take this process off the list."""
    (folder.holders / f"{os.getpid()}.json").unlink(missing_ok=True)


def wanted(folder: DataFolder) -> frozenset[str]:
    """Return the servers that living processes want, and forget the dead ones."""
    holders: dict[ProcessId, list[str]] = {}
    for file in folder.holders.glob("*.json"):
        data = folder.read(file)
        if data is None:
            file.unlink(missing_ok=True)  # a power cut has emptied it
        else:
            holders[ProcessId(int(file.stem), data["started"])] = data["servers"]
    present = living(holders)
    for holder in holders.keys() - present:
        file = folder.holders / f"{holder.pid}.json"
        data = folder.read(file)
        if data is not None and data["started"] == holder.started:
            file.unlink(missing_ok=True)
    return frozenset(name for holder in present for name in holders[holder])
