"""The folder of this user's sockets on this machine.

Contract: only this user (and root) can enter the folder. So on a shared machine no other user can
connect, listen there in our place or remove a socket. A folder of that name that is open to others
is not touched: another one is made instead, with a name that no other process can foresee.
"""

import os
import secrets
import socket
import stat
import tempfile
import time
from pathlib import Path

MAX_PATH_BYTES = 100
"""The kernel takes 107, other systems' take 103."""
PROBE_SECONDS = 0.2
"""How long to wait for a socket to say that it is served."""
YOUNG_SECONDS = 60.0
"""A socket refuses connections between its `bind` and its `listen`.

So a younger one is not swept.
"""
BACKLOG = 100
_NAMES = "n-*.sock"


class NoFolder(Exception):
    """There is no place for a Unix socket here."""


def socket_path(wanted: str = "") -> Path:
    """Return a path where a new socket may be made. Raises NoFolder."""
    try:
        folder = _folder(Path(wanted)) if wanted else _own_folder()
    except OSError as error:
        raise NoFolder(f"no folder for Unix sockets can be made: {error}") from error
    path = folder / f"n-{secrets.token_hex(6)}.sock"
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise NoFolder(f"the path {path} is too long for a Unix socket")
    return path


def listening_socket(path: Path) -> socket.socket:
    """Return a socket that listens there, and that only this user may connect to.

    Raises OSError.
    """
    made = socket.socket(socket.AF_UNIX)
    try:
        made.bind(str(path))
        path.chmod(0o600)
        made.listen(BACKLOG)
    except OSError:
        made.close()
        raise
    return made


def is_ours(path: str) -> bool:
    """Tell whether a socket is there that this user (or root) has made."""
    try:
        found = os.lstat(path)
    except (OSError, ValueError):  # ValueError: no path at all
        return False
    return stat.S_ISSOCK(found.st_mode) and found.st_uid in (os.geteuid(), 0)


def sweep(folder: Path) -> int:
    """Remove sockets that nothing serves any more: their processes were killed. Return how many."""
    removed = 0
    for path in folder.glob(_NAMES):
        if is_ours(str(path)) and _is_old(path) and not _is_served(path):
            path.unlink(missing_ok=True)
            removed += 1
    return removed


def _is_old(path: Path) -> bool:
    try:
        return time.time() - path.lstat().st_mtime > YOUNG_SECONDS
    except FileNotFoundError:
        return False  # another process has swept it


def _is_served(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(PROBE_SECONDS)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return False
        except OSError:
            return True  # or its queue is full, say: only a certain end counts
        return True


def _own_folder() -> Path:
    wanted = Path(tempfile.gettempdir()) / f"sharding-{os.geteuid()}"
    try:
        return _folder(wanted)
    except NoFolder:
        return Path(tempfile.mkdtemp(prefix="sharding-"))


def _folder(path: Path) -> Path:
    """Make the folder, or find that it is ours alone."""
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise NoFolder(f"{path} is not a folder that belongs to this user alone (mode 0700)")
    return path
