"""Type the tutorial as a newcomer would: in an empty folder, with the wheel and nothing else of the
checkout.

    python .ci/check_tutorial.py WHEEL

`docs/getting-started.md` is followed literally. Its `sh` and `console` blocks are typed in, its
blocks of Python are written to the end of the files that they name, and the output that it shows
must come. Packages come from the registry, in the versions of `requirements.txt`. Only the port of
the page's web server is another, since 8000 may be taken.

Every command has a terminal of its own, in which the page's activation is typed first. All of them
are in the process group of a guard, which outlives this process and leaves nothing behind.
"""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlencode

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.docs.blocks import Block, Step, blocks, says, steps

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "getting-started.md"
STAYS = ("python manage.py sharding_node", "python manage.py runserver")
"""The beginnings of commands that go on until they are stopped."""
SECONDS = 600.0
"""The longest that a command may take: pip fetches PostgreSQL, beside all other checks."""
GUARD = 'trap "" TERM; read _; kill -TERM 0; sleep 5; rm -rf "$1"; kill -KILL 0'
"""Without their folder the servers end by themselves."""
NOT_A_NEWCOMERS = re.compile(r"DJANGO_|PYTHON|PYTEST_|SHARDING|EMBEDDED_|DATABASE_URL|REDIS_URL|VIRTUAL_ENV")


class TutorialError(Exception):
    """A step of the page does not do what the page says."""


class Newcomer:
    """A reader with an empty folder, who types in all that the page shows."""

    def __init__(self, place: Path, wheel: Path) -> None:
        self.place = place
        self.folder = place / "project"
        self.folder.mkdir()
        pins = re.findall(
            r"^[\w.-]+==[^\s\\]+(?: ; [^\\\n]+)?", (ROOT / "requirements.txt").read_text(), re.MULTILINE
        )
        constraints = place / "constraints.txt"
        pins.append(f"django-sharding-app=={wheel.name.split('-')[1]}")
        constraints.write_text("\n".join(pins) + "\n")
        kept = {name: value for name, value in os.environ.items() if not NOT_A_NEWCOMERS.match(name)}
        self.environment = {
            **kept,
            "PIP_CONSTRAINT": str(constraints),
            "PIP_FIND_LINKS": f"{wheel.resolve().parent.as_uri()} {kept.get('PIP_FIND_LINKS', '')}",
            "PYTHONUNBUFFERED": "1",
        }
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self.activation = ""
        self.staying: list[tuple[Step, subprocess.Popen[bytes], Path]] = []
        self.guard = subprocess.Popen(
            ["/bin/sh", "-c", GUARD, "sh", str(place)], stdin=subprocess.PIPE, process_group=0
        )

    def follow(self, page: Path) -> int:
        """Do what the page says; return the number of its commands."""
        typed = 0
        for block in blocks(page):
            if block.language == "python":
                self.write(block)
            elif block.language in {"sh", "console"}:
                for step in steps(block):
                    self.type(step)
                    typed += 1
        return typed

    def write(self, block: Block) -> None:
        """Write a block to the end of its file."""
        if block.file is None:
            raise TutorialError(f"line {block.line}: the block does not say to which file it belongs")
        file = self.folder / block.file
        if not file.parent.is_dir():
            raise TutorialError(f"line {block.line}: no step before it has made the folder of {block.file}")
        with file.open("a") as end:
            end.write(f"\n{block.text}" if end.tell() else block.text)

    def type(self, step: Step) -> None:
        """Type a command, and compare what it says."""
        if step.command.startswith(STAYS):
            self.start(step)
            return
        output = self.call(step) if step.command.startswith("curl ") else self.run(step)
        if not says(output, step.shown):
            raise self.wrong(step, "does not say what the page shows", output)
        if step.command.startswith(". "):
            self.activation += f"{step.command}\n"

    def run(self, step: Step) -> str:
        """Run a command to its end."""
        program, log = self.open(step.command, "command")
        try:
            ended = program.wait(SECONDS)
        except subprocess.TimeoutExpired:
            raise self.wrong(step, f"does not end in {SECONDS:g} s", log.read_text()) from None
        if ended != 0:
            raise self.wrong(step, f"ended with {ended}", log.read_text())
        return log.read_text()

    def call(self, step: Step) -> str:
        """Call the web server, once it is up."""
        deadline = time.monotonic() + SECONDS
        command = step.command.replace(":8000/", f":{self.port}/")
        while (answer := curl(shlex.split(command)[1:])) is None:
            if time.monotonic() > deadline or any(
                program.poll() is not None for _, program, _ in self.staying
            ):
                raise self.wrong(step, "reaches no server", "")
            time.sleep(0.1)
        return answer

    def start(self, step: Step) -> None:
        """Start a command that stays, and wait for its output."""
        port = f" {self.port}" if "runserver" in step.command else ""
        program, log = self.open(f"exec {step.command}{port}", f"staying-{len(self.staying)}")
        self.staying.append((step, program, log))
        deadline = time.monotonic() + SECONDS
        while not says(log.read_text(), step.shown):
            if program.poll() is not None or time.monotonic() > deadline:
                raise self.wrong(step, "does not say what the page shows", log.read_text())
            time.sleep(0.05)

    def open(self, command: str, name: str) -> tuple[subprocess.Popen[bytes], Path]:
        """Open a terminal in the folder and type a command there."""
        log = self.place / f"{name}.log"
        with log.open("wb") as output:
            program = subprocess.Popen(
                ["bash", "-ec", f"{self.activation}{command}"],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=self.guard.pid,
            )
        return program, log

    def wrong(self, step: Step, sentence: str, output: str) -> TutorialError:
        """Describe a step that went wrong, with what the terminals show."""
        said = "".join(f"    {line}\n" for line in output.splitlines())
        for other, _, log in self.staying:
            if other is not step:
                said += f"  Before that, `{other.command}` (line {other.line}) has said:\n"
                said += "".join(f"    {line}\n" for line in log.read_text().splitlines()[-30:])
        return TutorialError(f"line {step.line}: `{step.command}` {sentence}. It said:\n{said}")

    def leave(self) -> None:
        """End everything that was started, the servers in the box too."""
        for _, program, _ in self.staying:
            program.terminate()
        for _, program, _ in self.staying:
            try:
                program.wait(20)
            except subprocess.TimeoutExpired:
                program.kill()
        os.killpg(self.guard.pid, signal.SIGKILL)
        self.guard.communicate()
        self.end_servers(self.folder / ".data" / "supervisor.lock")

    def end_servers(self, lock: Path) -> None:
        """Ask the servers' supervisor to end; the pid in its lock is its own while it holds it."""
        if not lock.exists():
            return
        with lock.open() as held:
            for attempt in range(200):
                try:
                    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    if attempt == 0:
                        os.kill(int(lock.read_text()), signal.SIGTERM)
                    time.sleep(0.1)
                else:
                    return


def curl(words: list[str]) -> str | None:
    """Do what curl does with these arguments; return None while no server listens there."""
    given = [each.partition("=") for flag, each in pairwise(words) if flag == "-d"]
    body = urlencode({name: value for name, _, value in given}).encode() if given else None
    try:
        with urllib.request.urlopen(words[-1], body, timeout=60) as found:  # noqa: S310 - our own page's
            text: bytes = found.read()
    except urllib.error.HTTPError as error:
        with error:
            text = error.read()
    except urllib.error.URLError:
        return None
    return text.decode()


def main(wheel: Path) -> int:
    """Follow the page, and say which line of it is wrong."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("The check was told to end."))
    if not wheel.is_file():
        sys.exit(f"{wheel} is no wheel: `python .ci/check_wheel.py FOLDER` builds one.")
    with tempfile.TemporaryDirectory(prefix="tutorial-", ignore_cleanup_errors=True) as place:
        Path(place).chmod(0o711)  # the servers may have to run as another user
        newcomer = Newcomer(Path(place), wheel)
        try:
            typed = newcomer.follow(PAGE)
        except TutorialError as error:
            print(f"{PAGE.relative_to(ROOT)}, {error}")
            return 1
        finally:
            newcomer.leave()
    print(f"{PAGE.relative_to(ROOT)}: {typed} commands typed")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(Path(sys.argv[1])))
