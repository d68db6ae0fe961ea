"""Child processes: started again when they die, ended in order, and gone when their parent is."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from sharding_app.processes import child_processes
from sharding_app.processes.child_processes import Child, Supervisor, manage
from tests.support.live import ROOT, Program, children, running, until
from tests.support.slack import SLACK

QUIET = "import signal; print('here', flush=True); signal.pause()"


def python(code: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(code)]


@pytest.fixture
def said() -> list[str]:
    return []


def ready_at_a_word(child: Child, _: str) -> None:
    child.ready.set()


def supervised(supervisor: Supervisor, until_then: threading.Event) -> None:
    """Run a supervisor in this thread until the event is set."""

    def look() -> None:
        if until_then.is_set():
            supervisor.stopping = True

    supervisor.run(look)


def test_a_child_that_dies_is_started_again_each_time_later(
    said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_processes, "RESTART_SECONDS", 0.1)
    monkeypatch.setattr(child_processes, "RESTART_MAX_SECONDS", 0.4)
    monkeypatch.setattr(child_processes, "STEADY_SECONDS", 600.0)  # else a slow start counts as one
    child = Child("short", python("import sys; sys.exit(7)"))
    enough = threading.Event()

    def say(text: str) -> None:
        said.append(text)
        if len(said) == 4:
            enough.set()

    supervised(Supervisor([child], say), enough)
    assert said[:4] == [
        f"short ended with exit code 7; it is started again in {delay} s."
        for delay in ("0.1", "0.2", "0.4", "0.4")
    ]
    assert child.restarts >= 3
    assert not child.alive


def test_a_killed_child_is_named_with_its_signal(said: list[str]) -> None:
    child = Child("victim", python(QUIET))
    back = threading.Event()

    def look() -> None:
        if not said and child.alive:
            child.signal(signal.SIGKILL)
        elif child.restarts == 1 and child.alive:
            back.set()
            supervisor.stopping = True

    supervisor = Supervisor([child], said.append)
    supervisor.run(look)
    assert said == ["victim ended by SIGKILL; it is started again in 0.5 s."]
    assert back.is_set()


@pytest.mark.parametrize("how", ["add", "restart"])
def test_one_more_that_cannot_be_started_is_tried_again(
    said: list[str], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(child_processes, "RESTART_SECONDS", 0.05)
    child, other = Child("one more", python(QUIET)), Child("other", python(QUIET))
    supervisor = Supervisor([other] if how == "add" else [child, other], said.append)
    real, failed = subprocess.Popen, list[OSError]()

    def popen(*arguments: Any, **options: Any) -> Any:
        if not failed:
            failed.append(BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"))
            raise failed[0]
        return real(*arguments, **options)

    def look() -> None:
        if not failed:
            monkeypatch.setattr(subprocess, "Popen", popen)
            getattr(supervisor, how)(child)
        supervisor.stopping = child.alive and other.alive

    supervisor.run(look)
    assert said[0] == f"one more cannot be started: {failed[0]}"


def test_a_line_that_cannot_be_told_ends_no_listening(said: list[str]) -> None:
    """The disk may be full for a moment: nothing else reads what a child prints."""
    heard: list[str] = []

    def listen(_: Child, line: str) -> None:
        heard.append(line)
        if line == "one":
            raise OSError(errno.ENOSPC, "No space left on device")

    child = Child(
        "talker", python("print('one', flush=True)\nprint('two', flush=True)\n" + QUIET), listener=listen
    )
    supervisor = Supervisor([child], said.append)

    def look() -> None:
        supervisor.stopping = len(heard) == 3

    supervisor.run(look)
    assert heard == ["one", "two", "here"]


def test_the_last_lines_of_a_child_are_heard_before_its_parent_ends(
    said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_processes, "LAST_LINES_SECONDS", 60.0)
    heard: list[str] = []

    def listen(child: Child, line: str) -> None:
        child.ready.set()
        time.sleep(0.05)  # a terminal takes its time
        heard.append(line)

    says = (
        "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(print('a\\nb\\nc'))); " + QUIET
    )
    child = Child("talker", python(says), listener=listen)
    supervisor = Supervisor([child], said.append)

    def look() -> None:
        supervisor.stopping = child.ready.is_set()

    supervisor.run(look)
    assert heard == ["here", "a", "b", "c"]


def test_ranks_end_one_after_the_other(said: list[str], tmp_path: Path) -> None:
    """The site goes first, then the nodes; a node that is slow to leave is waited for."""
    notes = tmp_path / "notes"
    slow = f"""
        import signal, time
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        print("here", flush=True)
        signal.sigwait([signal.SIGTERM])
        time.sleep(0.3)
        open({str(notes)!r}, "a").write("%s ")
    """
    first = Child("first", python(slow % "first"), listener=ready_at_a_word)
    second = Child("second", python(slow % "second"), rank=1, listener=ready_at_a_word)
    supervisor = Supervisor([second, first], said.append)

    def look() -> None:
        supervisor.stopping = first.ready.is_set() and second.ready.is_set()

    supervisor.run(look)
    assert notes.read_text() == "first second "
    assert said == []


def test_a_start_that_fails_is_tried_again_and_costs_no_other_child(
    said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system may have no process or descriptor to spare for a while."""
    monkeypatch.setattr(child_processes, "RESTART_SECONDS", 0.05)
    child, other = Child("victim", python(QUIET)), Child("other", python(QUIET))
    real, failed = subprocess.Popen, list[OSError]()

    def popen(*arguments: Any, **options: Any) -> Any:
        if said and not failed:
            failed.append(BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"))
            raise failed[0]
        return real(*arguments, **options)

    monkeypatch.setattr(subprocess, "Popen", popen)
    there: set[int | None] = set()

    def look() -> None:
        there.add(other.pid)
        if not said and child.alive:
            child.signal(signal.SIGKILL)
        supervisor.stopping = bool(failed) and child.alive

    supervisor = Supervisor([child, other], said.append)
    supervisor.run(look)
    assert said[1] == f"victim cannot be started: {failed[0]}"
    assert len(there) == 1, "it has run through"


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EPIPE])
def test_a_log_that_takes_nothing_more_costs_no_child(error: int) -> None:
    child, other = Child("victim", python(QUIET)), Child("other", python(QUIET))
    killed: list[int | None] = []

    def say(_: str) -> None:
        raise OSError(error, os.strerror(error))

    def look() -> None:
        if not killed and child.alive:
            killed.append(child.pid)
            child.signal(signal.SIGKILL)
        supervisor.stopping = child.alive and child.pid not in killed

    supervisor = Supervisor([child, other], say)
    supervisor.run(look)
    assert (child.restarts, other.restarts) == (1, 0)


def test_what_does_not_end_by_itself_is_killed(said: list[str]) -> None:
    stubborn = """
        import signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("here", flush=True)
        while True: time.sleep(1)
    """
    child = Child("stubborn", python(stubborn), listener=ready_at_a_word)
    supervisor = Supervisor([child], said.append, patience_seconds=0.3)
    supervised(supervisor, child.ready)
    assert said == ["stubborn is killed: it did not end in time."]
    assert child.end == "ended by SIGKILL"


CHILD = f"""
import os, signal, sys, threading
sys.path.insert(0, {str(ROOT)!r})
from sharding_app.management.stdin_guard import at_end_of_input
signal.signal(signal.SIGTERM, signal.SIG_IGN if sys.argv[1] == "stubborn" else signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.SIG_IGN)
at_end_of_input((lambda: None) if sys.argv[1] == "stuck" else lambda: os._exit(0), 0.2)
print("here", os.getpid(), flush=True)
threading.Event().wait()
"""
PARENT = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from sharding_app.processes.child_processes import Child, Supervisor
child = Child("child", [sys.executable, "-c", {CHILD!r}, sys.argv[1]])
Supervisor([child], lambda text: print(text, flush=True)).run()
print("over", flush=True)
"""


def supervising(kind: str) -> Program:
    return Program([*python(PARENT), kind], os.environ)


def test_ctrl_c_ends_children_in_order_and_a_second_one_at_once() -> None:
    with supervising("tame") as program:
        program.wait_line("^here")
        assert program.stop(signal.SIGINT) == 0
        assert program.lines[1:] == ["over"]
    with supervising("stubborn") as program:
        pid = int(program.wait_line(r"^here (\d+)")[1])
        program.process.send_signal(signal.SIGINT)
        assert running(pid)
        program.process.send_signal(signal.SIGTERM)
        assert program.ended() == 0
        assert program.lines[1:] == ["child is killed.", "over"]
        assert not running(pid)


def test_a_closed_terminal_ends_all_in_order() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup children would be born to ignore it
    try:
        with supervising("tame") as program:
            program.wait_line("^here")
            assert program.stop(signal.SIGHUP) == 0
            assert program.lines[1:] == ["over"]
        with supervising("stubborn") as program:
            pid = int(program.wait_line(r"^here (\d+)")[1])
            for _ in range(2):  # its shell sends one, and the kernel at the shell's end
                program.process.send_signal(signal.SIGHUP)
                time.sleep(0.3)
            assert running(pid)
            program.process.send_signal(signal.SIGTERM)
            assert program.ended() == 0
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("kind", ["stubborn", "stuck"])
def test_children_end_with_a_parent_that_is_killed(kind: str) -> None:
    with supervising(kind) as program:
        pid = int(program.wait_line(r"^here (\d+)")[1])
        assert children(program.pid) == [pid]
        program.process.kill()
        until(lambda: not running(pid), 10, "the child has ended")


def test_what_children_print_comes_line_by_line() -> None:
    heard: list[tuple[str, str]] = []
    noisy = "import sys; print('one'); print('zwei äöü'); sys.stderr.write('three\\n'); sys.stdout.buffer.write(b'\\xff\\n')"
    child = Child("noisy", python(noisy), listener=lambda child, line: heard.append((child.name, line)))
    child.start()
    assert child.wait(20 * SLACK)
    until(lambda: len(heard) == 4, 10, "four lines")
    assert sorted(heard) == sorted([("noisy", each) for each in ("one", "zwei äöü", "three", "\ufffd")])
    assert child.end == "ended with exit code 0"
    child.release()


@pytest.mark.parametrize(
    ("started", "command"),
    [
        (["manage.py", "runcluster"], [sys.executable, "manage.py", "migrate"]),
        (["/site/manage.py", "runcluster"], [sys.executable, "/site/manage.py", "migrate"]),
        (["/usr/bin/django-admin", "runcluster"], [sys.executable, "-m", "django", "migrate"]),
        (["/lib/django/__main__.py", "runcluster"], [sys.executable, "-m", "django", "migrate"]),
        (["/site/starts_nodes.py"], [sys.executable, "-m", "django", "migrate"]),
        (["/site/starts_nodes.py", "two"], [sys.executable, "-m", "django", "migrate"]),
    ],
)
def test_children_are_started_as_we_were(
    started: list[str], command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", started)
    assert manage("migrate") == command


def test_a_group_of_its_own_keeps_ctrl_c_away_from_a_child() -> None:
    child = Child("child", python(QUIET))
    child.start()
    assert child.pid is not None
    answer = subprocess.run(
        ["ps", "-o", "pgid=", "-p", str(child.pid)], capture_output=True, text=True, check=True
    )
    assert int(answer.stdout) == child.pid
    child.signal(signal.SIGKILL)
    assert child.wait(10 * SLACK)
    child.release()
