"""Which changes of files count as new code."""

from __future__ import annotations

import os
from pathlib import Path

from sharding_app.management.reload import ProjectFiles, project_roots
from tests.support.live import ROOT


def write(path: Path, text: str = "", *, at: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (1_000_000 + at, 1_000_000 + at))
    return path


def test_changed_new_and_removed_modules_are_told_once(tmp_path: Path) -> None:
    views, models = write(tmp_path / "shop/views.py"), write(tmp_path / "shop/models.py")
    files = ProjectFiles([tmp_path])
    assert files.changed() == []
    write(views, "x = 1", at=5)
    entities = write(tmp_path / "shop/deep/entities.py")
    models.unlink()
    assert files.changed() == [entities, models, views]
    assert files.changed() == []


def test_what_is_no_code_of_the_project_does_not_count(tmp_path: Path) -> None:
    files = ProjectFiles([tmp_path])
    write(tmp_path / "shop/templates/home.html")
    write(tmp_path / "shop/__pycache__/views.cpython-311.py")
    write(tmp_path / ".git/hooks/hook.py")
    write(tmp_path / "node_modules/gyp/gyp.py")
    write(tmp_path / "env/pyvenv.cfg")
    write(tmp_path / "env/lib/python3/site.py")
    assert files.changed() == []


def test_the_projects_own_apps_and_settings_are_watched_and_nothing_installed() -> None:
    assert project_roots() == [ROOT / "project", ROOT / "sharding_app"]
