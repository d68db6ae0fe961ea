"""The data folder's files: after a power cut, on a full disk, beside a fork, in the wrong place."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import pwd
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from sharding_app.embedded import DataFolder, ServersError, database, settings
from sharding_app.embedded import holders as holders_module
from sharding_app.embedded.account import Account, server_account, use_place
from sharding_app.embedded.entries import follow
from sharding_app.embedded.holders import register, wanted, withdraw
from sharding_app.embedded.processes import ProcessId, identify
from sharding_app.embedded.starting import _import_path, supervised


@contextmanager
def forked() -> Iterator[int]:
    """Fork a child that does nothing."""
    child = os.fork()
    if not child:
        signal.pause()
        os._exit(0)
    try:
        yield child
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@pytest.mark.parametrize("kind", ["dangling link", "file", "file in it", "nowhere"])
def test_a_path_that_can_be_no_folder_is_said_so(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "data"
    match kind:
        case "dangling link":
            folder.symlink_to(tmp_path / "absent")
        case "file":
            folder.write_text("")
        case "file in it":
            folder.mkdir()
            (folder / "holders").write_text("")
        case "nowhere":
            folder = Path("/dev/null/data")
    with pytest.raises(ServersError, match=f"{folder} cannot be a data folder: .* Name another one"):
        database(folder)


def test_passwords_that_a_power_cut_has_emptied_are_said_so(tmp_path: Path) -> None:
    files = DataFolder(tmp_path / "data")
    files.access()
    files.access_file.write_text("")
    with pytest.raises(ServersError, match=r"access\.json is damaged\. .* remove .*data to begin anew"):
        files.access()
    files.access_file.write_text(json.dumps({"of_later": True}))
    with pytest.raises(ServersError, match=r"access\.json is of another release\. .* to begin anew"):
        files.access()


def test_emptied_notes_about_processes_count_for_nothing(tmp_path: Path) -> None:
    files = DataFolder(tmp_path / "data")
    with files.lock():
        register(files, frozenset({"postgres"}))
    for file in (files.holders / "999999999.json", files.running_file, files.failure_file):
        file.write_text("")
    assert wanted(files) == {"postgres"}
    assert not (files.holders / "999999999.json").exists()
    assert files.failures() == {}


def test_a_copy_of_a_folder_takes_no_process_of_the_original_for_its_own(tmp_path: Path) -> None:
    """It would use the original's servers, and end them."""
    files = DataFolder(tmp_path / "data")
    me = identify(os.getpid())
    assert me is not None
    with files.lock():
        register(files, frozenset({"postgres"}))
        files.write_servers({"postgres": (me, True)})
    shutil.copytree(files.path, tmp_path / "copy")
    copy = DataFolder(tmp_path / "copy")
    assert files.servers() == {"postgres": (me, True)}
    assert wanted(files) == {"postgres"}
    assert copy.servers() == {}
    assert wanted(copy) == frozenset()
    with copy.lock():
        register(copy, frozenset({"redis"}))
    assert wanted(copy) == {"redis"}
    assert wanted(files) == {"postgres"}
    (tmp_path / "data").rename(tmp_path / "moved")
    assert wanted(DataFolder(tmp_path / "moved")) == {"postgres"}


def test_processes_of_two_containers_with_one_pid_are_two_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = DataFolder(tmp_path / "data")
    both = [ProcessId(1, "Mon Nov 30 10:00:00 2026"), ProcessId(1, "Mon Nov 30 11:00:00 2026")]
    for process, name in zip(both, ("postgres", "redis"), strict=True):
        monkeypatch.setattr(holders_module, "identify", lambda _, process=process: process)
        with files.lock():
            register(files, frozenset({name}))
    monkeypatch.setattr(holders_module, "living", set)
    assert wanted(files) == {"postgres", "redis"}
    withdraw(files)
    assert wanted(files) == {"postgres"}


def test_a_copy_of_a_folder_whose_data_lie_elsewhere_is_refused(tmp_path: Path) -> None:
    """Both would have the same data, and those would go with the one that was used last."""
    place, folder, copy = tmp_path / "place", tmp_path / "data", tmp_path / "copy"
    place.mkdir()
    files = DataFolder(folder)
    files.change_access(replace(files.access(), place=str(place)))
    use_place(place, folder)
    shutil.copytree(folder, copy)
    with pytest.raises(ServersError, match=f"{copy} is a copy of {folder}, whose data is in {place}"):
        use_place(place, copy)
    folder.rename(tmp_path / "moved")
    use_place(place, tmp_path / "moved")
    assert (place / "belongs-to").read_text() == str(tmp_path / "moved")


def test_a_full_disk_is_said_and_leaves_no_halves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = DataFolder(tmp_path / "data")
    before = files.access()

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ServersError, match=r"access\.json cannot be written: No space left on device"):
        files.change_access(before)
    assert files.access() == before
    assert not list(files.path.glob("*.new"))


def test_a_forked_child_holds_no_lock_of_its_parents(tmp_path: Path) -> None:
    """A process may fork on one thread while another thread has the lock."""
    files = DataFolder(tmp_path / "data")
    with files.lock():
        child = forked()
        child.__enter__()
    descriptor = os.open(files.path / "lock", os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(descriptor)
        child.__exit__(None, None, None)


def test_a_forked_child_makes_no_supervisor_seem_to_live(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = DataFolder(tmp_path / "data")
    files.make()
    flock, children = fcntl.flock, []

    def forks_then(descriptor: int, operation: int) -> None:
        flock(descriptor, operation)
        if operation & fcntl.LOCK_EX:
            children.append(forked())
            children[-1].__enter__()

    monkeypatch.setattr(fcntl, "flock", forks_then)
    assert not supervised(files)
    monkeypatch.setattr(fcntl, "flock", flock)
    try:
        assert not supervised(files)
    finally:
        children[0].__exit__(None, None, None)


def test_a_child_that_is_forked_while_servers_start_can_start_them_itself() -> None:
    with settings._lock:
        child = os.fork()
        if not child:
            os._exit(0 if settings._lock.acquire(blocking=False) else 1)
        _, status = os.waitpid(child, 0)
    assert status == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root works in the folder of another user")
def test_a_command_of_root_does_not_shut_the_folders_owner_out(tmp_path: Path) -> None:
    files = DataFolder(tmp_path / "data")
    files.path.mkdir()
    owner = pwd.getpwnam("daemon")
    os.chown(files.path, owner.pw_uid, owner.pw_gid)
    access = files.access()
    with files.lock():
        register(files, frozenset({"postgres"}))
    files.change_access(access)
    assert not supervised(files)
    found = {each: each.stat().st_uid for each in files.path.rglob("*")}
    assert len(found) == 6
    assert set(found.values()) == {owner.pw_uid}
    assert server_account(files.path / "postgres", files.path) == Account(owner.pw_uid, owner.pw_gid)


def test_the_supervisor_finds_the_modules_that_its_starter_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["", "beside", "/opt/libraries"])
    assert _import_path()[:2] == [str(Path("beside").absolute()), "/opt/libraries"]


def test_entries_follow_a_port_that_was_changed(tmp_path: Path) -> None:
    """The program that has the old port would be shown a password."""
    folder = tmp_path / "data"
    entry, layer = database(folder), settings.channel_layer(folder)
    access = DataFolder(folder).access()
    other = type(access)(
        **{**json.loads((folder / "access.json").read_text()), "redis_port": 1, "postgres_port": 2}
    )
    follow(tmp_path / "another", other)
    assert entry["PORT"] == str(access.postgres_port)
    follow(folder, other)
    assert entry["PORT"] == "2"
    assert layer["CONFIG"]["hosts"][0]["address"] == "redis://127.0.0.1:1/0"
