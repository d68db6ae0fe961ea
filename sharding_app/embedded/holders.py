"""Who uses the servers of a data folder: one file for each process, named by its pid and start
time, which are inside as well. Processes of two containers may have one pid.

No process has to say goodbye: a file whose process is gone counts for nothing and is removed. One
that came with a copy of the folder counts for nothing either.
"""

from __future__ import annotations

import os
from pathlib import Path

from sharding_app.embedded.errors import ServersError
from sharding_app.embedded.folder import DataFolder
from sharding_app.embedded.processes import ProcessId, identify, living

_NAME = str.maketrans(": ", "--")


def register(folder: DataFolder, servers: frozenset[str]) -> None:
    """Enter this process as a user of these servers. The folder's lock must be held."""
    me = identify(os.getpid())
    if me is None:
        raise ServersError("This process cannot see itself: is `ps` installed?")
    file = _file(folder, me)
    before = folder.read(file)
    if before is not None and before["folder"] == folder.identity():
        servers |= set(before["servers"])
    folder.write(
        file, {"pid": me.pid, "started": me.started, "folder": folder.identity(), "servers": sorted(servers)}
    )


def withdraw(folder: DataFolder) -> None:
    """Take this process off the list."""
    me = identify(os.getpid())
    if me is not None:
        _file(folder, me).unlink(missing_ok=True)


def wanted(folder: DataFolder) -> frozenset[str]:
    """Return the servers that living processes want, and forget the dead ones."""
    holders: dict[ProcessId, list[str]] = {}
    here = folder.identity()
    for file in folder.holders.glob("*.json"):
        data = folder.read(file)
        if data is None:
            file.unlink(missing_ok=True)  # a power cut has emptied it
        elif data.get("folder") == here:
            holders[ProcessId(data["pid"], data["started"])] = data["servers"]
    present = living(holders)
    for holder in holders.keys() - present:
        _file(folder, holder).unlink(missing_ok=True)
    return frozenset(name for holder in present for name in holders[holder])


def _file(folder: DataFolder, process: ProcessId) -> Path:
    return folder.holders / f"{process.pid}-{process.started.translate(_NAME)}.json"
