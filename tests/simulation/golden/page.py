"""The page of the documentation that holds all scripts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.simulation.golden.observer import RULES

SCRIPTS = Path(__file__).parents[1] / "scripts"
PAGE = Path(__file__).parents[3] / "docs" / "protocol-scripts.md"
TOP = """\
# The protocol in scripts

The real nodes, coordinator, regions and links wrote each script below, in one run of the
[simulation](simulation.md) in which nothing is left to chance and nothing fails but what the script
needs. The first line compares this page and the files in `tests/simulation/scripts/` with the code.
The second line writes them and their pictures anew, after a change of the protocol. Nothing here is
edited by hand.

```console
$ python -m pytest tests/simulation/test_golden.py
$ python -m pytest tests/simulation/test_golden.py --rewrite-golden
```

[The protocol in pictures](protocol.md) explains the most important ones, and draws them.
The [tables](tables.md) and the [links](links.md) have pages of their own. The rules behind the
scripts are listed in the [architecture](architecture.md#contracts-between-the-machines).
"""


def path_of(name: str) -> Path:
    return SCRIPTS / f"{name}.txt"


def page_of(scripts: Mapping[str, str]) -> str:
    """Return the page: what may be read in a script, and each script."""
    parts = [TOP, "## How to read them\n", f"{RULES}\n"]
    for script in scripts.values():
        title, text, lines = script.split("\n\n", 2)
        parts += [f"## {title}\n", f"{text}\n", f"```text\n{lines}```\n"]
    return "\n".join(parts)
