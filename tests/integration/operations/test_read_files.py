"""`sharding_import` and its file: compressed or not, a pipe, changed behind its check, doctored."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from django.core.management.base import CommandError

from sharding_app.management.commands import sharding_import
from sharding_app.operations.journal_file import checked
from tests.integration.operations.test_transfer import everything, execute, lose_all, run

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("old_rows")]


def test_an_export_gets_no_name_of_a_compressed_file(tmp_path: Path) -> None:
    path = tmp_path / "carts.jsonl.gz"
    with pytest.raises(CommandError, match=r"not compressed.*does not end with \.gz"):
        run("sharding_export", "shop.Cart", "--to", path)
    assert not path.exists()


def test_an_export_is_read_compressed_or_not_whatever_its_name(tmp_path: Path) -> None:
    path = tmp_path / "carts.jsonl"
    rows = run("sharding_export", "shop.Cart", "--to", path)["rows"]
    named, packed = tmp_path / "plain.gz", tmp_path / "packed"
    named.write_bytes(path.read_bytes())
    packed.write_bytes(gzip.compress(path.read_bytes()))
    for each in (named, packed):
        assert run("sharding_import", each)["there"] == rows


def test_an_import_from_a_pipe_is_refused_and_checks_one(tmp_path: Path) -> None:
    """It would put nothing back the second time that it reads, and say that it is done."""
    path = tmp_path / "carts.jsonl"
    run("sharding_export", "shop.Cart", "--to", path)
    lose_all()
    for options in ((), ("--check",)):
        read, write = os.pipe()
        try:
            os.set_blocking(write, False)
            with os.fdopen(write, "wb") as out:
                out.write(path.read_bytes())
            if options:
                assert run("sharding_import", f"/dev/fd/{read}", *options)["type"] == "shop.Cart"
            else:
                with pytest.raises(CommandError, match=r"no regular file.*more than once"):
                    run("sharding_import", f"/dev/fd/{read}")
        finally:
            os.close(read)


def test_an_export_to_a_pipe_does_not_read_it(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(CommandError, match="Nothing is stored"):
            run("sharding_export", "shop.Cart", "none", "--to", path, "--resume")
        first, end = os.read(reading, 65536).splitlines()
    finally:
        os.close(reading)
    assert b'"row":"type"' in first
    assert b'"row":"end"' in end


def test_a_file_that_changes_behind_its_check_is_not_called_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "carts.jsonl"
    run("sharding_export", "shop.Cart", "--to", path)
    lose_all()

    def loses(found: Path, *args: Any) -> Any:
        header = checked(found, *args)
        path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:9]))
        return header

    monkeypatch.setattr(sharding_import, "checked", loses)
    with pytest.raises(CommandError, match=r"carts\.jsonl was changed while it was read"):
        run("sharding_import", path)
    assert not execute("SELECT 1 FROM sharding_decision WHERE action = 'journal_imported'")


DOCTORED = {
    "a NUL in an id": ('"user-050"', r'"user-\u0000"'),
    "a number of no bigint": (
        '"entity":"user-050","seq":1',
        '"entity":"user-050","seq":99999999999999999999',
    ),
    "a time of none": ('"at":"', '"at":"yesterday, or the day before, '),
    "a payload that is deep": ('"quantity":1', '"quantity":' + "[" * 100_000 + "]" * 100_000),
    "a payload of no text": ('"sku":"pen"', '"sku":"\udcff"'),
    "an id of no text": ('"user-050"', '"user-\udcff"'),
    "a payload of half a character": ('"sku":"pen"', r'"sku":"\ud800"'),
}


@pytest.mark.parametrize("how", DOCTORED)
def test_a_doctored_file_with_the_right_digest_is_refused_in_a_sentence(tmp_path: Path, how: str) -> None:
    path = tmp_path / "carts.jsonl"
    run("sharding_export", "shop.Cart", "user-050", "--to", path)
    execute("DELETE FROM sharding_event WHERE entity = 'user-050'")
    old, new = DOCTORED[how]
    header, rows, _ = path.read_bytes().decode().splitlines(keepends=True)
    rows = rows.replace(old, new) if old in rows else rows.replace(old.replace(":", ": "), new)
    body = rows.encode(errors="surrogateescape")
    body = header.encode() + body
    end = json.dumps({"row": "end", "rows": 1, "sha256": hashlib.sha256(body).hexdigest()})
    path.write_bytes(body + end.encode() + b"\n")
    before = everything()
    with pytest.raises(CommandError, match=r"carts\.jsonl"):
        run("sharding_import", path)
    assert everything() == before
