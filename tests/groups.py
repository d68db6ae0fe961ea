"""Which tests run in the same worker, where there are several, and which come first."""

from __future__ import annotations

FIRST = (
    "acceptance", "simulation", "browser", "commands", "lease", "postgres", "properties", "bench", "doctor", "docs",
)  # fmt: skip
"""Folders whose tests take long, so that no worker is left alone with them at the end."""
TOGETHER = {
    "acceptance": "acceptance",
    "acceptance/test_standby.py": "other servers",
    "acceptance/test_torture.py": "other servers",
    "browser": "browser",
    "contract": "sessions",
    "lease": "sessions",
    "postgres": "sessions",
    "properties": "sessions",
}
"""Folders and files whose tests share servers, or call their nodes alike on one server and so may end each other's
sessions; by the name of their group."""
APART = ("simulation",)
"""Folders whose tests share nothing and take long: each is a group of its own."""


def group(test: str) -> str:
    """Return the name of the group of a test, which one worker runs."""
    file, folder = _parts(test)
    return test if folder in APART else TOGETHER.get(file) or TOGETHER.get(folder) or file


def place(test: str) -> int:
    """Return how early a test comes: less is earlier."""
    _, folder = _parts(test)
    return FIRST.index(folder) if folder in FIRST else len(FIRST)


def _parts(test: str) -> tuple[str, str]:
    """Return the file of a test and its folder, seen from `tests`."""
    file = test.partition("::")[0].removeprefix("tests/")
    return file, file.partition("/")[0]
