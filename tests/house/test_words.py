"""Comments, docstrings, names and texts say who acts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.house.words import in_comments, in_python, pages_named
from tests.support.live import ROOT

APP = "sharding_app"
FOLDERS = (APP, "project", "benchmarks", "tests", "tools", ".ci")
ACCOUNT = ROOT / APP / "embedded/account.py"
"""Its texts name the account `nobody`."""
MARKS = {".sql": "--", ".js": "//", ".go": "//", "": "#"}
"""The marks of comments, by the ending of the file's name; scripts of a shell have none."""


def faults(file: Path, *, of_app: bool) -> list[str]:
    if file.suffix == ".py":
        return in_python(file.read_text(), every_text=of_app)
    mark = MARKS.get(file.suffix)
    return in_comments(file.read_text(), mark) if mark else []


def test_the_code_names_its_subjects() -> None:
    found = {
        str(file.relative_to(ROOT)): faults(file, of_app=folder == APP and file != ACCOUNT)
        for folder in FOLDERS
        for file in sorted((ROOT / folder).rglob("*"))
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert {".ci/run", "tools/porcupine/main.go"} <= set(found)
    assert len(found) > 500
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "source",
    [
        "wait()  # until somebody answers",
        '"""Nobody is told."""',
        'class Node:\n    state: str\n    "Whoever asks learns it."',
        "def test_nobody_waits() -> None:\n    pass",
        "class Somebody:\n    pass",
        'assert done, "no one came"',
    ],
)
def test_a_subject_without_a_name_is_noticed(source: str) -> None:
    assert len(in_python(source)) == 1


def test_data_and_accounts_are_no_prose() -> None:
    source = 'user = "nobody"  # the account `nobody`\nnobody = find(user)'
    assert in_python(source) == []
    assert in_python(source, every_text=True) == ["1: nobody"]
    assert in_comments("SELECT 1 AS nobody", "--") == []
    assert in_comments("SELECT 1 -- for somebody", "--") == ["1: for somebody"]


def test_no_text_names_a_page_that_the_wheel_lacks() -> None:
    found = {
        str(file.relative_to(ROOT)): pages_named(file.read_text()) for file in (ROOT / APP).rglob("*.py")
    }
    assert len(found) > 200
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_a_page_in_a_text_is_noticed_and_one_in_a_docstring_is_not() -> None:
    source = '"""As docs/roles.md grants it."""\nhint = f"See docs/checks.md, {number}."\n'
    assert pages_named(source) == ["2: See docs/checks.md, "]
