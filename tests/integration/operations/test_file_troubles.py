"""A file or an output that cannot be written or read: one sentence for the operator, and nothing is
lost.
"""

from __future__ import annotations

import io
import os
import resource
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from sharding_app.adapters.postgres.archive import Archive
from sharding_app.adapters.postgres.transfer import Transfer
from tests.integration.operations.old_rows import OLD, WHOLE
from tests.integration.operations.test_transfer import everything, execute, lose_all, run

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("old_rows")]


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let no file of this process become larger, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_full_disk_ends_an_export_with_a_sentence_and_it_goes_on(tmp_path: Path) -> None:
    path, other = tmp_path / "carts.jsonl", tmp_path / "other.jsonl"
    whole = run("sharding_export", "shop.Cart", "--to", other)
    with largest_file(4000), pytest.raises(CommandError, match=r"carts\.jsonl: File too large\. .*--resume"):
        run("sharding_export", "shop.Cart", "--to", path)
    assert run("sharding_export", "shop.Cart", "--to", path, "--resume") == whole
    assert path.read_bytes() == other.read_bytes()


def test_a_full_disk_ends_both_archives_with_a_sentence_and_they_go_on(tmp_path: Path) -> None:
    before, path, folder = everything(), tmp_path / "carts.jsonl.gz", tmp_path / "carts"
    with (
        largest_file(200),
        pytest.raises(CommandError, match=r"carts\.jsonl\.gz: File too large\. .*--resume"),
    ):
        run("sharding_archive", *OLD, "--to", path, "--yes")
    assert everything() == before
    assert run("sharding_archive", *OLD, "--to", path, "--yes", "--resume")["rows"] == 4
    with (
        largest_file(200),
        pytest.raises(CommandError, match=r"carts: File too large\. .*Run the command again"),
    ):
        run("sharding_archive", *WHOLE, "--to", folder, "--yes")
    run("sharding_archive", *WHOLE, "--to", folder, "--yes")
    assert not execute("SELECT 1 FROM sharding_event")
    for each in [*folder.glob("*.jsonl.gz"), path]:
        run("sharding_import", each)
    assert everything() == before


COMMANDS: list[tuple[str, ...]] = [
    ("sharding_export", "shop.Cart", "--to"),
    ("sharding_export_subject", "ann", "--yes", "--to"),
    ("sharding_archive", *OLD, "--yes", "--to"),
    ("sharding_import",),
]


@pytest.mark.parametrize("command", COMMANDS, ids=[each[0] for each in COMMANDS])
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("away/carts.gz", "No such file or directory"),
        (f"{'long' * 100}.gz", "File name too long"),
        ("file/carts.gz", "Not a directory"),
    ],
)
def test_a_path_that_leads_nowhere_is_named(
    tmp_path: Path, command: tuple[str, ...], name: str, said: str
) -> None:
    (tmp_path / "file").write_text("x")
    path = tmp_path / (name if command[0] == "sharding_archive" else name.removesuffix(".gz"))
    with pytest.raises(CommandError, match=rf"{path.name}: {said}\."):
        run(*command, path)


def test_a_directory_in_the_place_of_a_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="Is a directory"):
        run("sharding_export", "shop.Cart", "--to", tmp_path, "--resume")
    with pytest.raises(CommandError, match="Is a directory"):
        run("sharding_import", tmp_path)


def test_ctrl_c_is_told_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    path = tmp_path / "carts.jsonl"
    with monkeypatch.context() as patched:
        patched.setattr(Transfer, "events", interrupted)
        with pytest.raises(CommandError, match=r"Interrupted\. .*--resume"):
            run("sharding_export", "shop.Cart", "--to", path)
    assert run("sharding_export", "shop.Cart", "--to", path, "--resume")["rows"]
    monkeypatch.setattr(Transfer, "old_entities", interrupted)
    with pytest.raises(CommandError, match=r"Interrupted\."):
        run("sharding_archive", *OLD)


WITH_IDS: list[tuple[str, ...]] = [
    ("sharding_export", "shop.Cart"),
    ("sharding_archive", *OLD),
    ("sharding_archive", *WHOLE),
    ("sharding_import", "away.jsonl"),
    ("sharding_export_subject", "--yes"),
    ("sharding_erase", "shop.Cart", "--yes"),
    ("sharding_erase_subject", "--yes"),
]


@pytest.mark.parametrize("command", WITH_IDS, ids=[each[0] for each in WITH_IDS])
@pytest.mark.parametrize(
    ("entity", "said"), [("", "empty"), (os.fsdecode(b"ann\xff"), "surrogates"), ("x" * 513, "512 bytes")]
)
def test_an_id_that_no_entity_can_have_is_refused(command: tuple[str, ...], entity: str, said: str) -> None:
    """An empty one is of a variable that a script has not set. It does not stand for all."""
    name, *rest = command
    operands = rest[:1] if not rest[0].startswith("-") else []
    before = everything()
    with pytest.raises(CommandError, match=rf"No entity can have this ID: .*{said}"):
        call_command(name, *operands, entity, *rest[len(operands) :], stdout=StringIO(), stderr=StringIO())
    assert everything() == before


def closed_pipe() -> io.TextIOWrapper:
    read, write = os.pipe()
    os.close(read)
    return io.TextIOWrapper(os.fdopen(write, "wb"))


def full_disk() -> io.TextIOWrapper:
    return io.TextIOWrapper(Path("/dev/full").open("wb"))


@pytest.mark.parametrize(
    ("stream", "said"), [(closed_pipe, "Broken pipe"), (full_disk, "No space left on device")]
)
@pytest.mark.parametrize("arguments", [("sharding_export", "shop.Cart"), ("sharding_archive", *OLD)])
def test_standard_output_that_takes_nothing_is_told_once(
    monkeypatch: pytest.MonkeyPatch,
    stream: Callable[[], io.TextIOWrapper],
    said: str,
    arguments: tuple[str, ...],
) -> None:
    out = stream()
    monkeypatch.setattr(sys, "stdout", out)
    with pytest.raises(CommandError, match=rf"Standard output: {said}\."):
        call_command(*arguments, stdout=out, stderr=StringIO())
    out.close()  # as at the end of the process: it has no more to complain about


def test_a_name_that_no_encoding_has_is_printed(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"carts-\xff.jsonl")
    out = io.TextIOWrapper(io.BytesIO(), "utf-8")
    call_command("sharding_export", "shop.Cart", "--to", str(path), stdout=out, stderr=StringIO())
    out.seek(0)
    assert r"carts-\udcff.jsonl, SHA-256" in out.read()
    assert run("sharding_import", path)["there"]


def test_a_link_that_leads_nowhere_makes_no_file(tmp_path: Path) -> None:
    path, elsewhere = tmp_path / "carts.jsonl", tmp_path / "elsewhere"
    path.symlink_to(elsewhere)
    with pytest.raises(CommandError, match=r"carts\.jsonl: File exists"):
        run("sharding_export", "shop.Cart", "--to", path)
    assert not elsewhere.exists()


def test_files_are_readable_by_the_user_who_made_them_alone(tmp_path: Path) -> None:
    folder, before = tmp_path / "carts", os.umask(0o022)
    try:
        run("sharding_export", "shop.Cart", "--to", tmp_path / "carts.jsonl")
        run("sharding_archive", *OLD, "--to", tmp_path / "carts.jsonl.gz", "--yes")
        run("sharding_archive", *WHOLE, "--to", folder, "--yes")
    finally:
        os.umask(before)
    files = [tmp_path / "carts.jsonl", tmp_path / "carts.jsonl.gz", *folder.iterdir()]
    assert [mode(each) for each in files] == [0o600] * 3


@pytest.mark.parametrize("number", [3, 6, 9, 12, 15])
@pytest.mark.parametrize(
    ("command", "file", "again"),
    [
        (("sharding_export", "shop.Cart", "--to"), "carts.jsonl", ("--resume",)),
        (("sharding_archive", *OLD, "--yes", "--to"), "carts.jsonl.gz", ("--resume",)),
        (("sharding_archive", *WHOLE, "--yes", "--to"), "carts", ()),
        (("sharding_import",), "given.jsonl", ()),
    ],
    ids=["export", "archive", "archive of entities", "import"],
)
def test_a_lost_connection_is_told_with_code_2_and_the_command_goes_on(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
    file: str,
    again: tuple[str, ...],
    number: int,
) -> None:
    run("sharding_export", "shop.Cart", "--to", tmp_path / "given.jsonl")
    before, path = everything(), tmp_path / file
    if command[0] == "sharding_import":
        lose_all()
    real, calls = Transfer._rows, []

    def rows(self: Transfer, query: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
        calls.append(query)
        if len(calls) == number:
            execute("SELECT pg_terminate_backend(%s, 5000)", self._connection.info.backend_pid)
        return real(self, query, params)

    with monkeypatch.context() as patched:
        patched.setattr(Transfer, "_rows", rows)
        patched.setattr(Archive, "_rows", rows)
        try:
            run(*command, path)
            code = 0
        except CommandError as error:
            code = error.returncode
    assert code == (2 if len(calls) >= number else 0)
    if not code:
        return
    run(*command, path, *(again if path.exists() else ()))
    for each in (tmp_path / "carts").glob("*.gz"):
        run("sharding_import", each)
    if path.suffix == ".gz":
        run("sharding_import", path)
    assert everything() == before
