"""The pages about the entity model, executed."""

import traceback
from pathlib import Path

import pytest

from tests.docs.blocks import blocks
from tests.docs.pages import Page, run_in_memory, run_on_servers
from tests.docs.snippets import Reader
from tests.docs.test_snippets import DOCS
from tests.support.live import ROOT, Live
from tests.support.scratch_project import WITH_SHARDING, ScratchProject
from tests.typing.test_typing import by_mypy

WRONG = """
# A page

```python
from sharding_app import Entity, command


class Bell(Entity):
    @command
    def ring(self) -> int:
        return 1
```

```python
assert await Bell.ref("a").ring() == 1
assert await Bell.ref("a").ring() == 2
```
"""


@pytest.mark.parametrize(
    ("name", "asking"),
    [("coming-from-akka", 4), ("entities", 9), ("persistence", 5), ("retries", 5), ("schema-evolution", 4)],
)
def test_a_page_about_entities_runs(name: str, asking: int) -> None:
    page = Page(DOCS / f"{name}.md")
    assert len(page.asks) >= asking, "something is not recognized"
    run_in_memory(page)


@pytest.mark.parametrize("name", ["entities", "persistence", "retries", "schema-evolution", "messages"])
def test_what_a_page_shows_is_typed(name: str, tmp_path: Path) -> None:
    """A reader may copy it into a project that is checked strictly. Its lines keep their
    numbers.
    """
    page = DOCS / f"{name}.md"
    lines = [""] * len(page.read_text().splitlines())
    for block in blocks(page):
        if block.language == "python":
            code = block.text.replace("from __future__ import annotations", "").splitlines()
            lines[block.line : block.line + len(code)] = code
    lines[0] = "from sharding_app.testing import MemoryCluster; cluster: MemoryCluster"
    source = tmp_path / f"{name.replace('-', '_')}.py"
    source.write_text("\n".join(lines))
    found = by_mypy(tmp_path, [source.name])[source.name]
    assert {"top-level-await"} in found.values(), "it has read the page"
    assert {line: codes for line, codes in found.items() if codes != {"top-level-await"}} == {}


@pytest.mark.django_db(transaction=True)
def test_the_page_about_django_runs() -> None:
    page = Page(DOCS / "django.md")
    assert len(page.asks) == 6
    run_on_servers(page)


def test_the_page_about_testing_runs(
    live_servers: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the project of the guide, whose tests are those of the page; named here is what an
    installed package brings.
    """
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_XDIST_TESTRUNUID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:valkey -p sharding_app.testing.plugin -p no:cacheprovider")
    page = DOCS / "testing.md"
    with live_servers.empty_database() as live:
        project = ScratchProject(tmp_path / "mysite", live)
        project.append("mysite/settings.py", WITH_SHARDING)
        project.write("shop/entities.py", (ROOT / "project/shop/entities.py").read_text())
        project.write("shop/tests/__init__.py", "")
        (ini,) = [block.text for block in blocks(page) if block.language == "ini"]
        project.write("pytest.ini", ini)
        Reader(project).follow(page)


def test_a_page_that_says_something_wrong_is_noticed_at_its_line(tmp_path: Path) -> None:
    path = tmp_path / "wrong-page.md"
    path.write_text(WRONG)
    with pytest.raises(AssertionError) as caught:
        run_in_memory(Page(path))
    assert [each.lineno for each in traceback.extract_tb(caught.tb) if each.filename == str(path)] == [16]
