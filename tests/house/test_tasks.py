"""The furniture around the code: the checks are listed once, and versions are said once."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import sharding_app

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_ci_the_hook_and_the_task_run_one_list_of_checks() -> None:
    hooks = re.findall(r"entry: (.+)", (ROOT / ".pre-commit-config.yaml").read_text())
    assert hooks == [".ci/check"]
    assert re.search(
        r'^beside "the quick checks" beneath \.ci/check$', (ROOT / ".ci" / "run").read_text(), re.MULTILINE
    )
    tasks = (ROOT / "noxfile.py").read_text()
    assert 'ROOT / ".ci" / "check"' in tasks
    for tool in ("ruff", "lint-imports", "mypy"):
        assert f".venv/bin/{tool}" in (ROOT / ".ci" / "check").read_text()
        assert not re.search(rf'(\.venv/bin/|"){tool}\b', (ROOT / ".ci" / "run").read_text() + tasks)


def test_the_version_stands_in_one_place() -> None:
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["hatch"]["version"]["path"] == "sharding_app/__init__.py"
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+)?", sharding_app.__version__)


def test_the_lock_holds_each_requirement_of_the_project() -> None:
    """The whole of it, and whether it resolves, is asked of pip by `.ci/check_pins.py`."""
    script = (
        "import runpy, sys; sys.argv = ['check_pins.py']; found = runpy.run_path('.ci/check_pins.py')\n"
        "for file in found['LOCKS']:\n"
        "    pins = {pin.requirement.name: pin.requirement for pin in found['read_pins'](file)[0]}\n"
        "    for need in found['roots'](file):\n"
        "        pin = pins[found['canonicalize_name'](need.name)]\n"
        "        (version,) = pin.specifier\n"
        "        assert need.specifier.contains(version.version), f'{file}: {need}, {pin}'\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert answer.returncode == 0, answer.stderr
