"""A file is on disk, with its name, before a command says so or deletes what stands in it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sharding_app.operations.journal_file import FORMAT, Header, PageWriter, RememberedLine

HEADER = Header(FORMAT, "shop.Cart", "event_sourced", "c1", archived=True)


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The inodes that were put on disk, in order."""
    found: list[int] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        real(descriptor)
        found.append(os.fstat(descriptor).st_ino)

    monkeypatch.setattr(os, "fsync", fsync)
    return found


def test_a_page_is_on_disk_with_the_name_of_its_file(tmp_path: Path, synced: list[int]) -> None:
    path = tmp_path / "shop.Cart.jsonl.gz"
    with PageWriter(path, HEADER) as writer:
        assert {path.stat().st_ino, tmp_path.stat().st_ino} == {*synced}
        synced.clear()
        writer.page([RememberedLine("alice")])
        assert synced == [path.stat().st_ino]


def test_what_a_killed_run_has_written_is_on_disk_before_a_later_run_goes_by_it(
    tmp_path: Path, synced: list[int]
) -> None:
    path = tmp_path / "shop.Cart.jsonl.gz"
    with PageWriter(path, HEADER) as writer:
        writer.page([RememberedLine("alice")])
    synced.clear()
    with PageWriter(path, HEADER):
        assert synced == [path.stat().st_ino, tmp_path.stat().st_ino]
