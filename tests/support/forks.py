"""Programs that begin as copies of one process which has imported Django and the app
(`tests.support.fork_server`): a start costs a third of the processor time.

`popen` takes what `subprocess.Popen` takes here. It starts the real command line where a copy would
be another program than was asked for, and in tests that use `real_starts`.
"""

from __future__ import annotations

import atexit
import io
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any

import pytest

from tests.support.fork_server import END_OF_ORDER

ROOT = Path(__file__).resolve().parents[2]
OF_THE_START = (
    "LD_PRELOAD",
    "PYTHONPATH",
    "PYTHONHASHSEED",
    "PYTHONPYCACHEPREFIX",
    "PYTHONDONTWRITEBYTECODE",
)
"""Variables that count when a process starts: a copy has those of the process that is copied."""
_copies = True
_lock = threading.Lock()
_server: Server | None = None


class Server:
    """The process that is copied, and the line to it. It ends with this process."""

    def __init__(self) -> None:
        self.line, theirs = socket.socketpair()
        with theirs:
            environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONWARNINGS": ""}
            environment.pop("DJANGO_SETTINGS_MODULE", None)
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.fork_server", str(theirs.fileno())], cwd=ROOT,
                env=environment, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip

    def order(self, order: Mapping[str, object], descriptors: list[int]) -> None:
        text = json.dumps(order).encode() + END_OF_ORDER
        sent = socket.send_fds(self.line, [text], descriptors)
        self.line.sendall(text[sent:])

    def close(self) -> None:
        self.line.close()
        self.process.wait()


def _started() -> Server:
    global _server
    if _server is None:
        _server = Server()
        atexit.register(_server.close)
    return _server


class Copy(subprocess.Popen[Any]):
    """A copy that runs a program, as a Popen shows it. It begins a session of its own."""

    def __init__(
        self, command: list[str], folder: str, environment: Mapping[str, str], descriptors: list[int]
    ) -> None:
        self.args = command
        self.returncode = None
        self.stdin = self.stdout = self.stderr = None
        self._waits = threading.Lock()
        said, theirs = os.pipe()
        self._report: IO[bytes] = os.fdopen(said, "rb", buffering=0)
        order = {"program": command[1:], "folder": folder, "environment": dict(environment)}
        try:
            with _lock:
                _started().order(order, [*descriptors, theirs])
        finally:
            os.close(theirs)
        self.pid = self._number()

    def _number(self) -> int:
        line = self._report.readline()
        if not line.endswith(b"\n"):
            raise RuntimeError("the process that is copied has ended")
        return int(line)

    def poll(self) -> int | None:
        return self._ended(0.0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return code

    def _ended(self, seconds: float | None) -> int | None:
        """Wait at most that long for the end. A thread that only looks waits for no other."""
        if self._waits.acquire(blocking=seconds != 0.0):
            try:
                if self.returncode is None and select.select([self._report], [], [], seconds)[0]:
                    self.returncode = self._number()
                    self._report.close()
            finally:
                self._waits.release()
        return self.returncode

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, sig)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __del__(self, *_: object) -> None:
        """Let go of the report: the process that is copied waits for each copy."""
        self._report.close()


def popen(
    command: list[str], *, cwd: Path | str | None, env: Mapping[str, str], stdin: int, stdout: int | IO[bytes],
    stderr: int | IO[bytes], text: bool = False, start_new_session: bool = True,
) -> subprocess.Popen[Any]:  # fmt: skip
    """Start a program: as a copy where that is the same program."""
    if not _can_be_a_copy(command, env, new_session=start_new_session):
        return subprocess.Popen(
            command, cwd=cwd, env=dict(env), stdin=stdin, stdout=stdout, stderr=stderr, text=text,
            start_new_session=start_new_session,
        )  # fmt: skip
    with ExitStack() as theirs:
        given: list[int] = []
        ours: list[tuple[int, int]] = []
        for number, wanted in enumerate((stdin, stdout, stderr)):
            if wanted == subprocess.STDOUT:
                given.append(given[-1])
            elif wanted == subprocess.PIPE:
                reads, writes = os.pipe()
                kept, passed = (writes, reads) if number == 0 else (reads, writes)
                ours.append((number, kept))
                given.append(passed)
                theirs.callback(os.close, passed)
            elif wanted == subprocess.DEVNULL:
                given.append(theirs.enter_context(Path(os.devnull).open("r+b", buffering=0)).fileno())
            else:
                assert not isinstance(wanted, int)
                given.append(wanted.fileno())
        copy = Copy(command, str(cwd or Path.cwd()), env, given)
    for number, kept in ours:
        binary = os.fdopen(kept, "rb" if number else "wb")
        file = io.TextIOWrapper(binary, write_through=True) if text else binary
        setattr(copy, ("stdin", "stdout", "stderr")[number], file)
    return copy


def _can_be_a_copy(command: list[str], environment: Mapping[str, str], *, new_session: bool) -> bool:
    return (
        _copies
        and new_session
        and sys.platform == "linux"
        and command[0] == sys.executable
        and (command[1] in ("-m", "manage.py"))
        and not environment.get("PYTHONWARNINGS")
        and all(environment.get(each) == os.environ.get(each) for each in OF_THE_START)
    )


def run(
    command: list[str], *, cwd: Path | str, env: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, without input. Raises TimeoutExpired."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        started = popen(command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        try:
            code = started.wait(timeout)
        except BaseException:
            started.kill()
            started.wait()
            raise
        said = []
        for each in (out, err):
            each.seek(0)
            said.append(each.read().decode())
    return subprocess.CompletedProcess(command, code, *said)


@pytest.fixture
def real_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start the real command line in this test, as users do."""
    monkeypatch.setattr(sys.modules[__name__], "_copies", False)
