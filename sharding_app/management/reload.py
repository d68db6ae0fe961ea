"""Notices changed Python files of the project: its apps and settings package, not installed
code.
"""

import os
import sys
import sysconfig
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from django.apps import apps
from django.conf import settings
from django.utils.autoreload import StatReloader

SKIPPED = {"__pycache__", "node_modules", "site-packages", "dist-packages"}


class ProjectFiles(StatReloader):
    """Django's reloader by modification time, limited to the project's files."""

    def __init__(self, roots: list[Path]) -> None:
        super().__init__()
        self.roots = roots
        self._seen = dict(self.snapshot_files())

    def watched_files(self, include_globs: bool = True) -> Iterator[Path]:
        for root in self.roots:
            for folder, folders, files in os.walk(root):
                folders[:] = [
                    each
                    for each in folders
                    if each not in SKIPPED and each[0] != "." and not _is_venv(folder, each)
                ]
                yield from (Path(folder, each) for each in files if each.endswith(".py"))

    def changed(self) -> list[Path]:
        """Return the files that were changed, created or removed since the last call."""
        now = dict(self.snapshot_files())
        before, self._seen = self._seen, now
        return sorted(path for path in now.keys() | before.keys() if now.get(path) != before.get(path))


def project_roots() -> list[Path]:
    """Return the folders of the project's own code: apps and settings package that are not
    installed.
    """
    packages = {Path(config.path).resolve() for config in apps.get_app_configs()}
    top = (settings.SETTINGS_MODULE or "").partition(".")[0]
    spec = find_spec(top) if top else None
    if spec is not None:
        packages |= {Path(each).resolve() for each in spec.submodule_search_locations or ()}
    own = sorted(each for each in packages if not _installed(each))
    return [each for each in own if not any(each != other and each.is_relative_to(other) for other in own)]


def _installed(path: Path) -> bool:
    places = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return bool(SKIPPED & set(path.parts)) or any(
        path.is_relative_to(Path(each).resolve()) for each in places
    )


def _is_venv(folder: str, name: str) -> bool:
    path = Path(folder, name)
    return path == Path(sys.prefix) or (path / "pyvenv.cfg").exists()
