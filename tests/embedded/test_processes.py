"""A process is its pid and its start time; where there is no /proc (macOS), `ps` tells both."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sharding_app.embedded import processes
from sharding_app.embedded.ports import _outgoing, free_port, port_is_free
from sharding_app.embedded.processes import (
    ProcessId,
    alive,
    children,
    command_name,
    gone,
    identify,
    is_stopped,
    living,
    send,
)


@pytest.fixture(params=["/proc", "/nowhere"])
def source(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at processes both ways."""
    monkeypatch.setattr(processes, "_PROC", Path(request.param))


@pytest.mark.usefixtures("source")
def test_a_process_is_known_until_it_ends_and_not_after() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        process = identify(child.pid)
        assert process is not None
        assert identify(child.pid) == process
        assert process in children(os.getpid())
        assert command_name(child.pid) == "sleep"
        assert living([process, ProcessId(child.pid, "another start")]) == {process}

        send(ProcessId(child.pid, "another start"), signal.SIGKILL)
        assert not gone(process, 0.1), "a signal to another process that had this pid must not reach this one"
        send(process, signal.SIGKILL)
        assert gone(process, 10)
        assert not alive(process), "its parent has not waited for it yet: a zombie counts as dead"
        assert identify(child.pid) is None


@pytest.mark.usefixtures("source")
@pytest.mark.usefixtures("source")
def test_a_process_that_a_signal_has_stopped_is_told_from_one_that_runs() -> None:
    child = subprocess.Popen(["sleep", "60"])
    try:
        assert not is_stopped(child.pid)
        child.send_signal(signal.SIGSTOP)
        os.waitpid(child.pid, os.WUNTRACED)
        assert is_stopped(child.pid)
    finally:
        child.kill()
        child.wait()
    assert not is_stopped(child.pid)


def test_start_times_tell_processes_apart_that_had_the_same_pid() -> None:
    me = identify(os.getpid())
    assert me is not None
    assert alive(me)
    assert not alive(ProcessId(me.pid, me.started + "1"))
    assert command_name(2**22 + 1) == ""


def test_names_with_spaces_and_parentheses_are_read(tmp_path: Path) -> None:
    program = tmp_path / "a) b (c"
    program.symlink_to(sys.executable)
    with subprocess.Popen([program, "-c", "input()"], stdin=subprocess.PIPE) as child:
        process = identify(child.pid)
        assert process is not None
        assert alive(process)
        child.kill()


def test_a_port_is_free_and_is_not_one_the_kernel_gives_to_clients() -> None:
    port = free_port()
    assert port_is_free(port)
    assert port not in _outgoing()
