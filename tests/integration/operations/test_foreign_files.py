"""A file that no command of ours has begun is left as it is."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from django.core.management.base import CommandError

from tests.integration.operations.old_rows import OLD, WHOLE
from tests.integration.operations.test_transfer import everything, run

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("old_rows")]


def test_going_on_destroys_no_file_of_anything_else(tmp_path: Path) -> None:
    """Its only line does not end: it is no beginning of ours."""
    path, packed = tmp_path / "settings.json", tmp_path / "settings.json.gz"
    text = json.dumps({"row": "type", "precious": "x" * 500}).encode()
    path.write_bytes(text)
    packed.write_bytes(half := gzip.compress(text)[:-8])
    with pytest.raises(CommandError, match=r"settings\.json was not begun by this command"):
        run("sharding_export", "shop.Cart", "--to", path, "--resume")
    with pytest.raises(CommandError, match=r"settings\.json\.gz was not begun by this command"):
        run("sharding_archive", *OLD, "--to", packed, "--yes", "--resume")
    assert path.read_bytes() == text
    assert packed.read_bytes() == half


def test_rows_without_a_beginning_are_not_gone_on_with(tmp_path: Path) -> None:
    """No import would take the file, and the events of the run would be nowhere else."""
    path, packed = tmp_path / "carts.jsonl", tmp_path / "carts.jsonl.gz"
    line = b'{"row":"remembered","entity":"alice"}\n'
    path.write_bytes(line)
    packed.write_bytes(gzip.compress(line))
    before = everything()
    with pytest.raises(CommandError, match="was not begun by this command"):
        run("sharding_export", "shop.Cart", "--to", path, "--resume")
    with pytest.raises(CommandError, match="was not begun by this command"):
        run("sharding_archive", *OLD, "--to", packed, "--yes", "--resume")
    assert everything() == before


@pytest.mark.parametrize("size", [0, 1, 5, 30, 60])
def test_an_archive_that_ended_within_its_first_line_goes_on(tmp_path: Path, size: int) -> None:
    path = tmp_path / "carts.jsonl.gz"
    run("sharding_archive", *OLD, "--to", path, "--yes")
    whole = path.read_bytes()
    run("sharding_import", path)
    path.write_bytes(whole[:size])
    assert run("sharding_archive", *OLD, "--to", path, "--yes", "--resume")["rows"] == 4
    assert path.read_bytes() == whole


def test_files_of_types_with_like_names_share_a_directory(tmp_path: Path) -> None:
    other = tmp_path / "shop.Cart-late-000007.jsonl.gz"
    other.write_bytes(b"of the type shop.Cart-late")
    (tmp_path / "shop.Cart-\N{SUPERSCRIPT TWO}.jsonl.gz").write_bytes(b"of the operator")
    moved = run("sharding_archive", *WHOLE, "--to", tmp_path, "--yes")
    assert [each["name"] for each in moved["files"]] == ["shop.Cart-000001.jsonl.gz"]
