"""mypy (strict) and pyright accept what is right, infer its types, and reject each wrong line for its own reason.

pyright is asked where it stands on the PATH, as CI puts it there: with its Node it weighs more than all the rest.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
MARK = re.compile(r"# wrong: ([\w+-]+), ([\w+]+)$")
MYPY = """
[mypy]
strict = true
python_version = 3.11
mypy_path = {root}
explicit_package_bases = true
follow_imports = silent
"""


CHECKERS = ["mypy", *(["pyright"] if shutil.which("pyright") else [])]


def complaints(checker: str, source: Path, folder: Path) -> dict[int, set[str]]:
    """The codes of all errors, by line."""
    found: dict[int, set[str]] = {}
    if checker == "mypy":
        config = folder / "mypy.ini"
        config.write_text(MYPY.format(root=ROOT))
        command = [
            sys.executable,
            "-m",
            "mypy",
            f"--config-file={config}",
            f"--cache-dir={ROOT}/.mypy_cache/feel",
        ]
        done = subprocess.run(
            [*command, "--output=json", str(source)], capture_output=True, text=True, cwd=ROOT, check=False
        )
        assert done.returncode in (0, 1), done.stdout + done.stderr
        for line in filter(None, done.stdout.splitlines()):
            said = json.loads(line)
            if said["severity"] == "error":
                assert Path(said["file"]).name == source.name, said
                found.setdefault(said["line"], set()).add(said["code"])
    else:
        config = folder / "pyrightconfig.json"
        settings = {
            "include": [source.name],
            "extraPaths": [str(ROOT)],
            "pythonVersion": "3.11",
            "typeCheckingMode": "strict" if source.stem == "right" else "standard",
        }
        config.write_text(json.dumps(settings))
        command = ["pyright", "--outputjson", "--project", str(config)]
        done = subprocess.run(
            [*command, "--pythonpath", sys.executable],
            capture_output=True,
            text=True,
            cwd=folder,
            check=False,
        )
        assert done.returncode in (0, 1), done.stdout + done.stderr
        for said in json.loads(done.stdout)["generalDiagnostics"]:
            if said["severity"] == "error":
                found.setdefault(said["range"]["start"]["line"] + 1, set()).add(said.get("rule", "syntax"))
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(HERE / "right.py", tmp_path / "right.py")
    shutil.copy(HERE / "wrong.py.txt", tmp_path / "wrong.py")
    return tmp_path


@pytest.mark.parametrize("checker", CHECKERS)
def test_what_is_right_is_accepted_and_inferred(checker: str, folder: Path) -> None:
    assert complaints(checker, folder / "right.py", folder) == {}


@pytest.mark.parametrize("checker", CHECKERS)
def test_each_wrong_line_is_rejected_for_its_own_reason(checker: str, folder: Path) -> None:
    source = folder / "wrong.py"
    expected = {
        number: set(found[1 if checker == "mypy" else 2].split("+"))
        for number, line in enumerate(source.read_text().splitlines(), start=1)
        if (found := MARK.search(line))
    }
    assert len(expected) >= 15
    assert complaints(checker, source, folder) == expected
