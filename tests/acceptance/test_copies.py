"""A program that begins as a copy of a process is what it would be at the real command line."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.support import forks

PROGRAM = """
import os, random, sys, django.conf
from pathlib import Path
print(sys.argv, __name__, os.getcwd(), sys.path[0], os.environ["OF_THE_PROGRAM"], "OTHERS" in os.environ, os.getsid(0) == os.getpid())
print(django.conf.settings.configured, sorted(os.listdir("/proc/self/fd"))[:3], [each.isatty() for each in (sys.stdin, sys.stdout)])
print(sys.stdin.readline(), file=sys.stderr)
if "by itself" in sys.argv:
    raise SystemExit("and says why")
if "fails" in sys.argv:
    raise ValueError("in the program")
if "waits" in sys.argv:
    print(random.random())
    sys.stdin.readline()
"""


def started(place: Path, *arguments: str, **more: str) -> subprocess.Popen[Any]:
    environment = {each: value for each, value in os.environ.items() if each != "OTHERS"}
    return forks.popen(
        [sys.executable, "manage.py", *arguments], cwd=place, env={**environment, "OF_THE_PROGRAM": "ours", "PYTHONUNBUFFERED": "1", **more},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def told(place: Path, *arguments: str, **more: str) -> tuple[str, int]:
    """Return what it says, without the lines of a traceback, and how it ends."""
    with started(place, *arguments, **more) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        program.stdin.write("a line\n")
        program.stdin.close()
        said = program.stdout.read()
        return "\n".join(line for line in said.splitlines() if not line.startswith(" ")), program.wait(60)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "manage.py").write_text(textwrap.dedent(PROGRAM))
    return tmp_path


@pytest.mark.parametrize("arguments", [(), ("by itself", "--option=1"), ("fails",)])
def test_it_finds_and_says_the_same(
    place: Path, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTHERS", "of this process")
    copied = told(place, *arguments)
    monkeypatch.setattr(forks, "_copies", False)
    assert copied == told(place, *arguments)
    assert "'manage.py'" in copied[0]


def test_copies_are_signalled_waited_for_and_draw_other_numbers(place: Path) -> None:
    with started(place, "waits") as one, started(place, "waits") as other:
        assert isinstance(one, forks.Copy)
        numbers = set()
        for each in (one, other):
            assert each.stdin is not None
            assert each.stdout is not None
            each.stdin.write("a line\n")
            each.stdin.flush()
            numbers.add([each.stdout.readline() for _ in range(5)][-1])
            assert each.poll() is None
        assert len(numbers) == 2
        with pytest.raises(subprocess.TimeoutExpired):
            one.wait(0.01)
        one.kill()
        assert one.wait(60) == -signal.SIGKILL
        one.kill()
        assert other.poll() is None
        assert other.stdin is not None
        other.stdin.close()
        assert other.wait(60) == 0


@pytest.mark.parametrize("variable", forks.OF_THE_START)
def test_a_variable_of_the_start_is_obeyed(place: Path, variable: str) -> None:
    with started(place, **{variable: os.environ.get(variable, "") + "1"}) as program:
        assert not isinstance(program, forks.Copy)
