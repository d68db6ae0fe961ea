"""The documentation as a site, with the dependency group `tools`: `sphinx-build -W -c docs . site`.

The README is its first page. All pages are read in the repository as well, so they hold no
directive of Sphinx. The side bar has what `docs/README.md` lists: each bold line of it begins a
part, and the links below it are the pages of that part, in that order.
"""

import re
import tomllib
from pathlib import Path

from sphinx.application import Sphinx

HERE = Path(__file__).parent
_PART = re.compile(r"^\*\*(?P<part>[^*]+)\.\*\*", re.MULTILINE)
_PAGE = re.compile(r"\]\((?P<page>[\w/-]+)\.md\)")
PAGES = "docs/README"
DECISIONS = "docs/decisions/README"

project = tomllib.loads((HERE.parent / "pyproject.toml").read_text("utf-8"))["project"]["name"]
extensions = ["myst_parser"]
root_doc = "README"
include_patterns = ["README.md", "docs/**.md"]
html_theme = "furo"
html_title = "Cluster sharding for Django"
myst_heading_anchors = 4


def contents(text: str) -> str:
    """Return the parts of the page as lists of contents, which only the side bar shows."""
    begins = list(_PART.finditer(text))
    found = []
    for part, following in zip(begins, [*begins[1:], None], strict=True):
        end = following.start() if following else len(text)
        pages = _PAGE.findall(text, part.end(), end)
        found += [
            "```{toctree}",
            ":hidden:",
            f":caption: {part['part']}",
            *(f"docs/{page}" for page in pages),
            "```",
            "",
        ]
    return "\n".join(found)


def add_contents(app: Sphinx, name: str, source: list[str]) -> None:
    if name == root_doc:
        source[0] += f"\n```{{toctree}}\n:hidden:\n\n{PAGES}\n```\n"
        source[0] += "\n" + contents((HERE / "README.md").read_text("utf-8"))
    if name == DECISIONS:
        source[0] += "\n```{toctree}\n:hidden:\n:glob:\n\n0*\n```\n"


def begin_at_index(app: Sphinx, error: Exception | None) -> None:
    """Servers of files show `index.html` first."""
    if error is None and app.builder.name == "html":
        (Path(app.outdir) / "index.html").write_text(
            f'<!doctype html><meta http-equiv="refresh" content="0; url={root_doc}.html">\n', "utf-8"
        )


def setup(app: Sphinx) -> None:
    app.connect("source-read", add_contents)
    app.connect("build-finished", begin_at_index)
