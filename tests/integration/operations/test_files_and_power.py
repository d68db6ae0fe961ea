"""Files on the disk after a crash of the machine."""

from __future__ import annotations

import errno
import gzip
import os
from pathlib import Path
from typing import Any

import pytest
from django.core.management.base import CommandError

from sharding_app.adapters.postgres.archive import Archive
from tests.integration.operations.old_rows import OLD, WHOLE
from tests.integration.operations.test_transfer import everything, run

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("old_rows")]


def test_a_page_that_the_disk_refused_to_keep_is_not_gone_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system shows it as written, and forgets that it is not: it must not stay in the file."""
    before, path, real, calls = everything(), tmp_path / "carts.jsonl.gz", os.fsync, []

    def fsync(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 4:  # the file, its folder, the first line, the first page
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fsync)
        with pytest.raises(CommandError, match="Input/output error"):
            run("sharding_archive", *OLD, "--to", path, "--yes")
    assert everything() == before
    assert gzip.decompress(path.read_bytes()).count(b"\n") == 1, "the first line alone"
    assert run("sharding_archive", *OLD, "--to", path, "--yes", "--resume")["rows"] == 4


def test_the_name_of_a_closed_file_is_on_disk_before_a_run_goes_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run that gave it the name was killed before it was. After a crash of the machine the file
    would be one that is not closed, which the next run throws away.
    """
    folder = tmp_path / "new" / "carts"
    synced: list[int] = []
    real_sync, real_rename, remove = os.fsync, Path.rename, Archive.remove

    def rename(self: Path, target: Any) -> Any:
        real_rename(self, target)
        raise OSError("killed")

    def fsync(descriptor: int) -> None:
        real_sync(descriptor)
        synced.append(os.fstat(descriptor).st_ino)

    def removed(self: Archive, *args: Any) -> Any:
        assert folder.stat().st_ino in synced
        return remove(self, *args)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Archive, "remove", removed)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", rename)
        with pytest.raises(CommandError, match="killed"):
            run("sharding_archive", *WHOLE, "--to", folder, "--yes")
    new = {tmp_path.stat().st_ino, folder.parent.stat().st_ino} - {*synced}
    synced.clear()
    run("sharding_archive", *WHOLE, "--to", folder, "--yes")
    assert not new, "the new directories have their names on disk too"
