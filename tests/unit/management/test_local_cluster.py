"""The cluster of `runcluster` while new code is tried, and where its output takes nothing more."""

from __future__ import annotations

import errno
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sharding_app.management import local_cluster
from sharding_app.management.local_cluster import LocalCluster
from sharding_app.management.reload import ProjectFiles
from tests.support.live import running, until
from tests.support.slack import SLACK

SECONDS = 30.0


@pytest.fixture
def hanging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have new code that never loads; return the file with the pid of the process that tries it."""
    file = tmp_path / "pid"
    code = (
        f"import os, pathlib, time; pathlib.Path({str(file)!r}).write_text(str(os.getpid())); time.sleep(600)"
    )
    monkeypatch.setattr(local_cluster, "manage", lambda *_: [sys.executable, "-c", code])
    return file


def rolling(cluster: LocalCluster) -> threading.Thread:
    """Load the new code on a thread."""
    thread = threading.Thread(target=cluster._roll_out, daemon=True)
    thread.start()
    return thread


def pid_in(file: Path) -> int:
    """Return the pid, once it is there."""
    until(lambda: file.exists() and file.read_text().isdigit(), SECONDS, "the new code is tried")
    return int(file.read_text())


def test_a_cluster_ends_though_new_code_hangs(hanging: Path) -> None:
    said: list[str] = []
    cluster = LocalCluster(0, None, say=said.append, all_up=lambda: None, files=None)
    thread = rolling(cluster)
    pid = pid_in(hanging)
    cluster.supervisor.stopping = True
    thread.join(SECONDS * SLACK)
    assert not thread.is_alive()
    assert not running(pid)
    assert said == []


def test_new_code_that_cannot_be_tried_ends_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may have no process to spare for a while."""

    def popen(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    said: list[str] = []
    cluster = LocalCluster(0, None, say=said.append, all_up=lambda: None, files=None)
    monkeypatch.setattr(subprocess, "Popen", popen)
    cluster._roll_out()
    assert len(said) == 1
    assert f"cannot be tried: [Errno {errno.EAGAIN}]" in said[0]
    assert "The cluster continues with the old code." in said[0]


def test_code_that_hangs_is_given_up_when_it_is_changed_again(hanging: Path, tmp_path: Path) -> None:
    files = ProjectFiles([tmp_path])
    cluster = LocalCluster(0, None, say=lambda _: None, all_up=lambda: None, files=files)
    thread = rolling(cluster)
    pid = pid_in(hanging)
    (tmp_path / "views.py").touch()
    thread.join(SECONDS * SLACK)
    assert not thread.is_alive()
    assert not running(pid)
    assert [each.name for each in cluster._changed] == ["views.py"]


def test_output_that_takes_nothing_more_ends_no_cluster() -> None:
    def full(_text: str = "") -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    cluster = LocalCluster(1, None, say=full, all_up=full, files=None)
    (node,) = cluster.supervisor.children
    cluster.heard(node, "a line of its log")
    node.ready.set()
    cluster._look()
    cluster.heard(node, "node node-1 is up")
    assert cluster._complete
