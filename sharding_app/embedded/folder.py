"""The data folder: ports, passwords and who uses the servers, in files that only their owner can
read.

Reading or making it starts nothing, so settings may do both. Everything in it is written whole or
not at all.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sharding_app.embedded.errors import ServersError
from sharding_app.embedded.ports import LOOPBACK, free_port
from sharding_app.embedded.processes import ProcessId

DATABASE = USER = "sharding"
ADMINISTRATOR = "postgres"
"""PostgreSQL's superuser, for tests and for repairs; no setting of the site names it."""


@dataclass(frozen=True, slots=True)
class Access:
    """How the servers of a data folder are reached, whether or not they run."""

    postgres_port: int
    postgres_password: str
    redis_port: int
    redis_password: str
    secret_key: str
    place: str
    postgres_admin_password: str = ""
    durable: bool = True
    """Whether PostgreSQL waits for the disk."""

    @property
    def database_url(self) -> str:
        """Return the database's URL."""
        return f"postgresql://{USER}:{self.postgres_password}@{LOOPBACK}:{self.postgres_port}/{DATABASE}"

    @property
    def admin_url(self) -> str:
        """Return the database's URL for its superuser; a folder without one has it in the ordinary
        role.
        """
        if not self.postgres_admin_password:
            return self.database_url
        user = f"{ADMINISTRATOR}:{self.postgres_admin_password}"
        return f"postgresql://{user}@{LOOPBACK}:{self.postgres_port}/{DATABASE}"

    @property
    def redis_url(self) -> str:
        """Return the URL of the Redis server."""
        return f"redis://:{self.redis_password}@{LOOPBACK}:{self.redis_port}/0"


def _new_access(durable: bool) -> Access:
    postgres_port = redis_port = free_port()
    while redis_port == postgres_port:
        redis_port = free_port()
    return Access(
        postgres_port=postgres_port,
        postgres_password=secrets.token_urlsafe(24),
        redis_port=redis_port,
        redis_password=secrets.token_urlsafe(24),
        secret_key=secrets.token_urlsafe(48),
        place="",
        postgres_admin_password=secrets.token_urlsafe(24),
        durable=durable,
    )


def unlock(descriptor: int) -> None:
    """Let go of a lock and close its file.

    Closing alone keeps it: a child that this process forks meanwhile, on another thread, has the
    file open too.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


class DataFolder:
    """The files of one data folder. `durable` counts when they are made, and stays."""

    def __init__(self, path: Path, *, durable: bool = True) -> None:
        self.path = path.absolute()
        self._durable = durable
        self.access_file = self.path / "access.json"
        self.holders = self.path / "holders"
        self.unversioned = self.path / ".gitignore"
        """Keeps git from taking in passwords and data."""
        self.running_file = self.path / "running.json"
        self.failure_file = self.path / "failure.json"
        self.supervisor_lock = self.path / "supervisor.lock"
        self.supervisor_log = self.path / "supervisor.log"

    def make(self) -> None:
        """Make the folder; as root, other users may pass through it but not look into it."""
        try:
            try:
                self.path.mkdir(parents=True)
            except FileExistsError:
                pass  # made before, or another process was quicker
            else:
                self.path.chmod(0o711 if os.geteuid() == 0 else 0o700)
            if not self.holders.is_dir():
                self.holders.mkdir(mode=0o700, exist_ok=True)
                if (owner := self._other_owner()) is not None:
                    os.lchown(self.holders, *owner)
            if not self.unversioned.exists():
                self._replace(self.unversioned, "*\n")
        except PermissionError as error:
            message = (
                f"{self.path} belongs to another user (was it made as root?): remove it, or run as that user."
            )
            raise ServersError(message) from error
        except OSError as error:
            raise ServersError(f"{self.path} cannot be a data folder: {error}. Name another one.") from error

    def open(self, file: Path, flags: int) -> int:
        """Open one of the files, made if need be, for its owner's eyes alone; return the
        descriptor.
        """
        flags |= os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(file, flags | os.O_EXCL, 0o600)
        except FileExistsError:
            if flags & os.O_EXCL:
                raise
            return os.open(file, flags, 0o600)
        if (owner := self._other_owner()) is not None:
            os.fchown(descriptor, *owner)
        return descriptor

    def _other_owner(self) -> tuple[int, int] | None:
        """Return the owner of files that root makes: that of the folder. Otherwise a command that
        was run once as root would shut that user out.
        """
        status = self.path.stat()
        return (status.st_uid, status.st_gid) if os.geteuid() == 0 != status.st_uid else None

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Exclude every other process of this folder; a killed one lets go by itself."""
        self.make()
        descriptor = self.open(self.path / "lock", os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            unlock(descriptor)

    def access(self) -> Access:
        """Read ports and passwords; the first call chooses them."""
        data = self.read(self.access_file)
        if data is None:
            with self.lock():
                data = self.read(self.access_file)
                if data is None:
                    data = asdict(_new_access(self._durable))
                    self.write(self.access_file, data, lasting=True)
        try:
            return Access(**data)
        except TypeError as error:
            raise ServersError(f"{self.access_file} is of another release. {self._anew}") from error

    def change_access(self, access: Access) -> None:
        """Keep a new port or place."""
        self.write(self.access_file, asdict(access), lasting=True)

    def identity(self) -> str:
        """Tell this folder from a copy of it: the lists of processes that a copy has are the
        original's.
        """
        status = self.path.stat()
        return f"{status.st_dev}:{status.st_ino}"

    def servers(self) -> dict[str, tuple[ProcessId, bool]]:
        """Return the processes of this folder's servers, and whether each takes connections."""
        recorded = self.read(self.running_file) or {}
        if recorded.pop("folder", "") != self.identity():
            return {}
        return {
            name: (ProcessId(entry["pid"], entry["started"]), entry["ready"])
            for name, entry in recorded.items()
        }

    def write_servers(self, servers: dict[str, tuple[ProcessId, bool]]) -> None:
        """Write down which processes the servers are."""
        entries: dict[str, Any] = {
            name: {"pid": process.pid, "started": process.started, "ready": ready}
            for name, (process, ready) in servers.items()
        }
        self.write(self.running_file, {"folder": self.identity(), **entries})

    def failures(self) -> dict[str, str]:
        """Return the sentences of servers that did not start, by name; "" is the supervisor."""
        return self.read(self.failure_file) or {}

    def change_failure(self, name: str, sentence: str | None) -> None:
        """Keep why a server did not start, or forget it."""
        with self.lock():
            before = self.failures()
            after = {key: text for key, text in before.items() if key != name}
            if sentence is not None:
                after[name] = sentence
            if after != before:
                self.write(self.failure_file, after)

    def read(self, file: Path) -> dict[str, Any] | None:
        """Read one of the files, or None where it is not there.

        A power cut may leave a file empty. Those that tell of processes count for nothing then:
        the processes have ended too.
        """
        try:
            found: dict[str, Any] = json.loads(file.read_text())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except ValueError as error:
            if file != self.access_file:
                return None
            raise ServersError(f"{file} is damaged. {self._anew}") from error
        except PermissionError as error:
            raise ServersError(
                f"{file} belongs to another user: remove {self.path}, or run as that user."
            ) from error
        return found

    def write(self, file: Path, data: dict[str, Any], *, lasting: bool = False) -> None:
        """Replace one of the files in one step. A `lasting` one outlives a power cut."""
        try:
            self._replace(file, json.dumps(data, indent=2), lasting=lasting)
        except OSError as error:
            raise ServersError(f"{file} cannot be written: {error.strerror or error}.") from error

    @property
    def _anew(self) -> str:
        return f"Bring it back from a copy, or remove {self.path} to begin anew, without its data."

    def _replace(self, file: Path, text: str, *, lasting: bool = False) -> None:
        fresh = file.with_name(f"{file.name}.{secrets.token_hex(4)}.new")
        try:
            descriptor = self.open(fresh, os.O_WRONLY | os.O_EXCL)
            with os.fdopen(descriptor, "w") as stream:
                stream.write(text)
                if lasting:
                    stream.flush()
                    os.fsync(descriptor)
            fresh.replace(file)
        except OSError:
            with suppress(OSError):
                fresh.unlink()  # half of it, on a full disk
            raise
