"""What only some machines let a test do: a small disk, a cable of its own for a node, a clock that
steps.

Where one is not possible its faults are left out, and `missing()` says so. All of it is undone when
the process that made it ends, however it ends; the host's clock, disks and network are not touched.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from sharding_app.embedded import OwnPostgres, OwnRedis
from sharding_app.embedded.ports import LOOPBACK
from sharding_app.embedded.postgres import Postgres
from sharding_app.embedded.valkey import Valkey

DISK_BYTES = 3 << 30
LIBRARIES = ("/usr/lib/*/faketime", "/usr/lib/faketime", "/usr/local/lib/faketime")
_NUMBER = os.getpid() % 16_000
"""Tells our network from that of another run on this machine."""
HERE = f"10.{213 + _NUMBER // 8000}.{_NUMBER // 62 % 129}.{_NUMBER % 62 * 4 + 1}"
THERE = f"{HERE.rpartition('.')[0]}.{int(HERE.rpartition('.')[2]) + 1}"


@cache
def clock_library() -> str:
    """Return the library that shows one process another time, or nothing."""
    for folder in LIBRARIES:
        for found in sorted(Path("/").glob(f"{folder.lstrip('/')}/libfaketimeMT.so*")):
            return str(found)
    return ""


@cache
def may_mount() -> bool:
    if sys.platform != "linux" or os.geteuid() != 0 or not shutil.which("mkfs.ext4"):
        return False
    try:
        Disk(16 << 20).close()
    except subprocess.CalledProcessError:
        return False
    return True


@cache
def may_wire() -> bool:
    if sys.platform != "linux" or os.geteuid() != 0 or not shutil.which("ip"):
        return False
    try:
        Cable().close()
    except subprocess.CalledProcessError:
        return False
    return True


def missing() -> list[str]:
    """Return what this machine cannot do, a line each."""
    known = {
        "clock steps: libfaketime is not installed": clock_library(),
        "a full disk: this user may not mount one": may_mount(),
        "network namespaces: this user may not make them": may_wire(),
    }
    return [what for what, possible in known.items() if not possible]


class Disk:
    """A file system in a file, mounted where the servers' user can reach it."""

    def __init__(self, size: int = DISK_BYTES) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="acceptance-disk-"))
        self.home.chmod(0o711)
        self.place, image = self.home / "mounted", self.home / "image"
        self.place.mkdir()
        self.ballast = self.place / "ballast"
        self._guard = _guard('umount -l "$1/mounted"; rm -rf "$1"', str(self.home))
        try:
            with image.open("wb") as file:
                file.truncate(size)
            # Nothing is reserved for root: what is full is full for everybody.
            _do("mkfs.ext4", "-q", "-F", "-m", "0", str(image))
            _do("mount", "-o", "loop", str(image), str(self.place))
        except subprocess.CalledProcessError:
            self.close()
            raise
        self.place.chmod(0o711)

    @property
    def full(self) -> bool:
        return self.ballast.exists()

    def fill(self) -> None:
        """Leave not one free block."""
        with self.ballast.open("wb") as file:
            while (left := os.statvfs(self.place)).f_bavail > 0:
                try:
                    os.posix_fallocate(
                        file.fileno(), file.seek(0, os.SEEK_END), left.f_bavail * left.f_frsize
                    )
                except OSError:
                    break
                file.seek(0, os.SEEK_END)

    def clear(self) -> None:
        self.ballast.unlink(missing_ok=True)

    def close(self) -> None:
        _release(self._guard)


class Cable:
    """A network namespace and the two ends of a virtual cable: ours is HERE, the other one
    THERE.
    """

    def __init__(self) -> None:
        self.name, end, other = f"acceptance-{_NUMBER}", f"acc{_NUMBER}a", f"acc{_NUMBER}b"
        self._end = end
        self._guard = _guard('ip link del "$2"; ip netns del "$1"', self.name, end)
        inside = ("-n", self.name)
        try:
            _do("ip", "netns", "add", self.name)
            _do("ip", "link", "add", end, "type", "veth", "peer", "name", other)
            _do("ip", "link", "set", other, "netns", self.name)
            _do("ip", "address", "add", f"{HERE}/30", "dev", end)
            _do("ip", "link", "set", end, "up")
            _do("ip", *inside, "address", "add", f"{THERE}/30", "dev", other)
            _do("ip", *inside, "link", "set", other, "up")
            _do("ip", *inside, "link", "set", "lo", "up")
        except subprocess.CalledProcessError:
            self.close()
            raise

    @property
    def prefix(self) -> list[str]:
        """What a command begins with that runs at the other end."""
        return ["ip", "netns", "exec", self.name]

    def unplug(self) -> None:
        _do("ip", "link", "set", self._end, "down")

    def plug(self) -> None:
        _do("ip", "link", "set", self._end, "up")

    def close(self) -> None:
        _release(self._guard)


class Clock:
    """What one process takes for the time of day. Its clocks that never step are the system's
    own.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.step(0)

    def step(self, seconds: int) -> None:
        """Let it differ from the system's by that much from now on."""
        fresh = self.file.with_suffix(".new")
        fresh.write_text(f"{seconds:+d}\n")
        fresh.replace(self.file)

    @property
    def environment(self) -> Mapping[str, str]:
        return {
            "LD_PRELOAD": clock_library(),
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }


class WiredPostgres(Postgres):
    """One that listens at our end of the cable too."""

    def prepare(self) -> None:
        super().prepare()
        rules = self.data / "pg_hba.conf"
        if THERE not in (known := rules.read_text()):
            rules.write_text(f"{known}\nhost all all {THERE}/32 scram-sha-256\n")

    def command(self) -> list[str]:
        return [*super().command(), "-c", f"listen_addresses={LOOPBACK},{HERE}"]


class OwnWiredPostgres(OwnPostgres):
    kind = WiredPostgres


class WiredValkey(Valkey):
    """One that listens at our end of the cable too."""

    def configuration(self) -> bytes:
        return super().configuration() + f"bind {LOOPBACK} {HERE}\n".encode()


class OwnWiredRedis(OwnRedis):
    kind = WiredValkey


def _do(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=60)


def _guard(script: str, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a shell that cleans up as soon as we let go of it, or are gone."""
    return subprocess.Popen(
        ["/bin/sh", "-c", f"read _; {script}", "sh", *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip


def _release(guard: subprocess.Popen[bytes]) -> None:
    guard.communicate(timeout=30)
