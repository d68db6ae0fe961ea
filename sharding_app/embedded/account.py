"""Who the servers run as, and what that user can read.

Postgres refuses to run as root. Started by root, the servers therefore run as `nobody`: no user is
created, and no directory that we did not make gets other rights. Where that user cannot reach the
data folder, it gets a place of its own under the system's temporary folder that is kept over
reboots.

`nobody` may be the account of other services too, so root trusts nothing that this account can
write: what changes below a server's directory is done by a process of the account itself, and what
root reads there is a regular file of a few kilobytes, reached without following a link.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import stat
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from sharding_app.embedded.errors import ServersError

_PREFIX = "sharding-servers-"
_OWNER = "belongs-to"
_USED = "used"
"""A file of places that hold the data of a folder. Its time is that of their last start."""
_KEPT_SECONDS = 30 * 86_400.0
"""How long such a place is kept without its folder, which may have been moved, or be unmounted."""
_MAX_READ = 4096
_LOOK_FROM = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW


class SpawnOptions(TypedDict, total=False):
    """What `subprocess` takes to start a process as another user."""

    user: int
    group: int
    extra_groups: list[int]


@dataclass(frozen=True, slots=True)
class Account:
    """The user that the servers run as; None for both means ourselves."""

    uid: int | None = None
    gid: int | None = None

    def spawn_options(self) -> SpawnOptions:
        """Return the arguments that make a child run as this user."""
        if self.uid is None or self.gid is None:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def own(self, directory: Path, mode: int) -> None:
        """Give a directory that we made to this user. Refuses a link, and a directory that is not
        ours.
        """
        descriptor = os.open(directory, _LOOK_FROM | os.O_DIRECTORY)
        try:
            if os.fstat(descriptor).st_uid != os.geteuid():
                raise ServersError(f"{directory} is not ours: remove it.")
            os.fchmod(descriptor, mode)
            if self.uid is not None and self.gid is not None:
                os.fchown(descriptor, self.uid, self.gid)
        finally:
            os.close(descriptor)

    def run(self, script: str, *arguments: str, cwd: Path, text: bytes = b"") -> None:
        """Run lines of the shell as this user: whatever links lie there lead to nothing but what is
        its own.
        """
        answer = subprocess.run(
            ["/bin/sh", "-eu", "-c", script, "sh", *arguments],
            input=text,
            capture_output=True,
            check=False,
            cwd=cwd,
            env={"PATH": os.defpath, "LC_ALL": "C"},
            **self.spawn_options(),
        )
        if answer.returncode != 0:
            raise ServersError(f"Files in {cwd} cannot be changed: {answer.stderr.decode(errors='replace')}")

    def allows(self, test: str, path: Path) -> bool:
        """Ask the system itself, as this user: `-x`, `-r`, … of the shell's test."""
        command = ["/bin/sh", "-c", f'test {test} "$1"', "sh", str(path)]
        try:
            answer = subprocess.run(
                command, cwd="/", capture_output=True, check=False, **self.spawn_options()
            )
        except (PermissionError, OSError) as error:
            message = (
                "The embedded PostgreSQL does not run as root, and this root may not start a process as 'nobody' "
                f"({error}). Run as an ordinary user, or use a server of your own."
            )
            raise ServersError(message) from error
        return answer.returncode == 0


def server_account(*places: Path) -> Account:
    """Choose the user: ourselves, or as root the first other owner of these places, or `nobody`.

    The places are the data and its folder: another user's folder has that user's servers.
    """
    if os.geteuid() != 0:
        _known(os.geteuid())
        return Account()
    for place in places:
        with suppress(FileNotFoundError):
            status = place.stat()
            if status.st_uid != 0:
                return Account(status.st_uid, status.st_gid)
    nobody = pwd.getpwnam("nobody")
    return Account(nobody.pw_uid, nobody.pw_gid)


def _known(uid: int) -> None:
    """Refuse a user without a name, as containers make them: PostgreSQL wants one for its files."""
    try:
        pwd.getpwuid(uid)
    except KeyError as error:
        message = (
            f"User {uid} has no name on this machine, and the embedded PostgreSQL needs one: add the user to /etc/passwd, "
            "or use a server of your own."
        )
        raise ServersError(message) from error


def reachable_place(folder: Path, account: Account) -> Path:
    """Return a directory that the account can pass through: the folder, or a new one where it
    can.
    """
    if account.uid is None or account.allows("-x", folder):
        return folder
    lasting = Path("/var/tmp")  # noqa: S108 - mkdtemp makes a new directory with a random name in it
    if not lasting.is_dir():
        lasting = Path(tempfile.gettempdir())
    _sweep(lasting)
    place = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=lasting))
    _name(place, folder)
    place.chmod(0o711)
    if not account.allows("-x", place):
        shutil.rmtree(place)
        message = f"User {account.uid} can reach neither {folder} nor {lasting}: use a server of your own."
        raise ServersError(message)
    return place


def _name(place: Path, folder: Path) -> None:
    (place / _OWNER).touch(mode=0o600)
    (place / _OWNER).write_text(str(folder.absolute()))


def use_place(place: Path, folder: Path) -> None:
    """Say that a place holds the data of this folder, which may have been moved since. Raises
    ServersError where it is ours no longer.
    """
    try:
        status = place.lstat()
    except FileNotFoundError:
        status = None
    if status is None or status.st_uid != os.geteuid() or not stat.S_ISDIR(status.st_mode):
        raise ServersError(
            f"The data of {folder} was in {place}, which is gone. Remove {folder} to begin anew, without its data."
        )
    with suppress(OSError):
        owner = Path(read_small(place, _OWNER))
        if _has_its_data_in(owner, place) and not owner.samefile(folder):
            raise ServersError(
                f"{folder} is a copy of {owner}, whose data is in {place}. Remove {folder} to begin anew, without its data."
            )
    _name(place, folder)
    (place / _USED).touch(mode=0o600)


def _has_its_data_in(folder: Path, place: Path) -> bool:
    try:
        return bool(json.loads((folder / "access.json").read_text())["place"] == str(place))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def read_small(directory: Path, *names: str) -> str:
    """Read a regular file of a few kilobytes below a directory. Raises OSError for a link, a pipe
    or a device.

    Another account may have put anything there: a link to a secret, a pipe that never ends a read,
    an endless device.
    """
    at = os.open(directory, _LOOK_FROM | os.O_DIRECTORY)
    try:
        for name in names[:-1]:
            below = os.open(name, _LOOK_FROM | os.O_DIRECTORY, dir_fd=at)
            os.close(at)
            at = below
        file = os.open(names[-1], _LOOK_FROM | os.O_NONBLOCK, dir_fd=at)
    finally:
        os.close(at)
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_READ:
            raise OSError(f"{names[-1]} in {directory} is no small regular file")
        return os.read(file, _MAX_READ).decode(errors="replace")
    finally:
        os.close(file)


def _sweep(lasting: Path) -> None:
    """Remove places that we made for folders which are there no longer, unless a database still
    runs in one, or its folder may come back.

    Others may make directories of such names too: whose it is, is asked before anything in it is
    looked at.
    """
    for place in lasting.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            status = place.lstat()
            if status.st_uid != os.geteuid() or not stat.S_ISDIR(status.st_mode):
                continue
            left = not Path(read_small(place, _OWNER)).exists() and not _may_be_wanted(place)
            if left and not os.path.lexists(place / "postgres/data/postmaster.pid"):
                # Another process may be sweeping the same one: each goes on where the other was
                # quicker.
                shutil.rmtree(place, ignore_errors=True)


def _may_be_wanted(place: Path) -> bool:
    try:
        return time.time() - (place / _USED).lstat().st_mtime < _KEPT_SECONDS
    except FileNotFoundError:
        return False
