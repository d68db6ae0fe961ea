"""Which tests run in the same worker, where there are several, and which come first."""

from __future__ import annotations

FIRST = (
    "acceptance", "simulation", "browser", "acceptance/commands", "docs", "bench", "embedded", "typing", "badinput",
    "integration/adapters/postgres", "integration/lives", "contract", "integration",
)  # fmt: skip
"""Folders whose tests take long, so that no worker is left alone with them at the end."""
TOGETHER = {
    "acceptance": "acceptance",
    "acceptance/test_standby.py": "other servers",
    "acceptance/test_torture.py": "other servers",
    "browser": "browser",
}
"""Folders and files whose tests share servers of their own, by the name of their group. On the
server of all tests each worker has databases of its own, and what ends sessions ends those of its
database alone.
"""
BY_FILE = ("acceptance/commands", "acceptance/test_lifeline_processes.py")
"""What stands in such a folder, and shares nothing with the rest of it."""
APART = ("simulation",)
"""Folders whose tests share nothing and take long: each is a group of its own."""


def group(test: str) -> str:
    """Return the name of the group of a test, which one worker runs."""
    file, *folders = _places(test)
    for each in (file, *folders):
        if each in APART:
            return test
        if each in BY_FILE:
            return file
        if each in TOGETHER:
            return TOGETHER[each]
    return file


def place(test: str) -> int:
    """Return how early a test comes: less is earlier."""
    return next((FIRST.index(each) for each in _places(test) if each in FIRST), len(FIRST))


def _places(test: str) -> list[str]:
    """Return the file of a test, its folder, the folder around that and so on, seen from
    `tests`.
    """
    parts = test.partition("::")[0].removeprefix("tests/").split("/")
    return ["/".join(parts[:depth]) for depth in range(len(parts), 0, -1)]
