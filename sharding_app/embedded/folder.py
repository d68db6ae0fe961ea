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
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sharding_app.embedded.errors import ServersError
from sharding_app.embedded.ports import LOOPBACK, free_port

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
            if not self.path.exists():
                self.path.mkdir(parents=True)
                self.path.chmod(0o711 if os.geteuid() == 0 else 0o700)
            self.holders.mkdir(mode=0o700, exist_ok=True)
            if not self.unversioned.exists():
                self.unversioned.touch(mode=0o600)
                self.unversioned.write_text("*\n")
        except FileExistsError:
            self.make()  # another process was quicker
        except PermissionError as error:
            message = (
                f"{self.path} belongs to another user (was it made as root?): remove it, or run as that user."
            )
            raise ServersError(message) from error

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Exclude every other process of this folder; a killed one lets go by itself."""
        self.make()
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def access(self) -> Access:
        """Read ports and passwords; the first call chooses them."""
        data = self.read(self.access_file)
        if data is None:
            with self.lock():
                data = self.read(self.access_file)
                if data is None:
                    data = asdict(_new_access(self._durable))
                    self.write(self.access_file, data)
        return Access(**data)

    def change_access(self, access: Access) -> None:
        """Keep a new port or place."""
        self.write(self.access_file, asdict(access))

    def read(self, file: Path) -> dict[str, Any] | None:
        """Read one of the files, or None where it is not there."""
        try:
            found: dict[str, Any] = json.loads(file.read_text())
        except FileNotFoundError:
            return None
        except PermissionError as error:
            raise ServersError(
                f"{file} belongs to another user: remove {self.path}, or run as that user."
            ) from error
        return found

    def write(self, file: Path, data: dict[str, Any]) -> None:
        """Replace one of the files in one step."""
        fresh = file.with_name(f"{file.name}.{os.getpid()}.new")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as stream:
            json.dump(data, stream, indent=2)
        fresh.replace(file)
