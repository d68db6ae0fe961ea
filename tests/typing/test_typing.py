"""mypy (strict) and pyright accept what is right, infer its types, and reject each wrong line for
its own reason.

pyright is asked where it stands on the PATH, as CI puts it there: with its Node it weighs more than
all the rest.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
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


FILES = ("right.py", "wrong.py")
Complaints = dict[str, dict[int, set[str]]]
"""The codes of all errors, by file and line."""


def by_mypy(folder: Path, names: Sequence[str] = FILES) -> Complaints:
    config = folder / "mypy.ini"
    config.write_text(MYPY.format(root=ROOT))
    command = [
        sys.executable, "-m", "mypy", f"--config-file={config}", f"--cache-dir={ROOT}/.mypy_cache/feel",
        "--output=json", *(str(folder / name) for name in names),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found: Complaints = {name: {} for name in names}
    for line in filter(None, done.stdout.splitlines()):
        said = json.loads(line)
        if said["severity"] == "error":
            name = Path(said["file"]).name
            assert name in names, said
            found[name].setdefault(said["line"], set()).add(said["code"])
    return found


def by_pyright(folder: Path) -> Complaints:
    config = folder / "pyrightconfig.json"
    settings = {
        "include": list(FILES),
        "extraPaths": [str(ROOT)],
        "pythonVersion": "3.11",
        "typeCheckingMode": "standard",
        "strict": ["right.py"],
    }
    config.write_text(json.dumps(settings))
    command = ["pyright", "--outputjson", "--project", str(config), "--pythonpath", sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found: Complaints = {name: {} for name in FILES}
    for said in json.loads(done.stdout)["generalDiagnostics"]:
        if said["severity"] == "error":
            lines = found[Path(said["file"]).name]
            lines.setdefault(said["range"]["start"]["line"] + 1, set()).add(said.get("rule", "syntax"))
    return found


CHECKERS: dict[str, Callable[[Path], Complaints]] = {
    "mypy": by_mypy,
    **({"pyright": by_pyright} if shutil.which("pyright") else {}),
}


@pytest.fixture(scope="module", params=CHECKERS)
def checked(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Complaints]:
    """Return a checker and all that it says: it is started once, and looks at both files."""
    folder = tmp_path_factory.mktemp(request.param)
    shutil.copy(HERE / "right.py", folder / "right.py")
    shutil.copy(HERE / "wrong.py.txt", folder / "wrong.py")
    return request.param, CHECKERS[request.param](folder)


def test_what_is_right_is_accepted_and_inferred(checked: tuple[str, Complaints]) -> None:
    _, complaints = checked
    assert complaints["right.py"] == {}


def test_each_wrong_line_is_rejected_for_its_own_reason(checked: tuple[str, Complaints]) -> None:
    checker, complaints = checked
    expected = {
        number: set(found[1 if checker == "mypy" else 2].split("+"))
        for number, line in enumerate((HERE / "wrong.py.txt").read_text().splitlines(), start=1)
        if (found := MARK.search(line))
    }
    assert len(expected) >= 15
    assert complaints["wrong.py"] == expected
