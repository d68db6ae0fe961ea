"""What README and the guides show works as it stands."""

from __future__ import annotations

import ast
import re
import shlex
import tomllib
from pathlib import Path

import pytest

from tests.docs.blocks import blocks, says
from tests.support.live import ROOT

DOCS = ROOT / "docs"
WRITTEN = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


def test_the_tutorial_has_six_steps() -> None:
    """CI types them in an empty environment: `.ci/check_tutorial.py`."""
    text = (DOCS / "getting-started.md").read_text()
    assert re.findall(r"^## (\d)\. ", text, re.MULTILINE) == list("123456")


def test_the_cart_of_the_readme_is_the_demos() -> None:
    """README shows the code that the demo runs, not a memory of it."""
    shown = [block.text for block in blocks(ROOT / "README.md") if block.language == "python"]
    assert (ROOT / "project/shop/entities.py").read_text() == shown[0]


@pytest.mark.parametrize("document", WRITTEN, ids=lambda path: path.name)
def test_install_lines_name_this_package_and_its_extras(document: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for line in re.findall(r"^pip install (.+)$", document.read_text(), re.MULTILINE):
        for wanted in shlex.split(line.partition("#")[0]):
            named = re.fullmatch(r"([\w.-]+)(?:\[([\w,]+)\])?", wanted)
            assert named is not None, line
            assert named[1] in {project["name"], "."}
            assert set((named[2] or "").split(",")) <= {"", *project["optional-dependencies"]}


def headings(page: Path) -> set[str]:
    """The names by which a page's headings are linked to."""
    found = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", each).lower().replace(" ", "-") for each in found}


@pytest.mark.parametrize("document", WRITTEN, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    for target, heading in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", document.read_text()):
        page = document.parent / target if target else document
        assert page.exists(), target
        assert not heading or heading in headings(page), f"{target}#{heading}"


@pytest.mark.parametrize("folder", [DOCS, DOCS / "decisions"], ids=lambda path: path.name)
def test_the_index_names_every_page(folder: Path) -> None:
    named = set(re.findall(r"\]\(([\w-]+\.md)\)", (folder / "README.md").read_text()))
    assert {page.name for page in folder.glob("*.md")} - {"README.md"} == named


@pytest.mark.parametrize("record", sorted((DOCS / "decisions").glob("0*.md")), ids=lambda path: path.stem)
def test_a_decision_says_why_what_and_at_which_price(record: Path) -> None:
    parts = re.findall(r"^\*\*(.+?)\.?\*\*", record.read_text(), re.MULTILINE)
    assert parts == ["Context", "Decision", "What it costs", "What would make us change it"]
    assert int(re.findall(r"^# (\d+)\. ", record.read_text())[0]) == int(record.stem[:4])


@pytest.mark.parametrize("document", WRITTEN, ids=lambda path: path.name)
def test_python_blocks_are_python(document: Path) -> None:
    for block in blocks(document):
        if block.language == "python":
            compile(block.text, f"{document.name}:{block.line}", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_the_reader_notices_what_is_not_said() -> None:
    assert says("one\ntwo and more\nthree", ["one", "two...", "three"])
    assert not says("one\ntwo and more", ["one", "two"])
    assert not says("two\none", ["one", "two"])
    assert not says("", ["anything"])
