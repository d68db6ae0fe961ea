"""Build the wheel and see that everything of the app is inside, and nothing of the demo site or the
tests.

    python .ci/check_wheel.py [FOLDER]

The wheel is left in the folder. Run with a Python that has hatchling: the build is not isolated, so
that it takes nothing from a registry.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main(folder: Path | None) -> int:
    """Compare the wheel's files with the repository's."""
    listed = subprocess.run(
        ["git", "ls-files", "sharding_app"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    expected = {name for name in listed.stdout.splitlines() if (ROOT / name).exists()}
    with tempfile.TemporaryDirectory() as target:
        command = [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "-q",
            "--no-deps",
            "--no-build-isolation",
            "-w",
            target,
            str(ROOT),
        ]
        if subprocess.run(command, check=False).returncode != 0:
            return 1
        (wheel,) = Path(target).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            inside = {name for name in archive.namelist() if ".dist-info/" not in name}
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy(wheel, folder)
    wrong = sorted(f"missing from the wheel: {name}" for name in expected - inside)
    wrong += sorted(
        f"not meant for the wheel: {name}" for name in inside if not name.startswith("sharding_app/")
    )
    if "sharding_app/py.typed" not in inside:
        wrong.append("missing from the wheel: sharding_app/py.typed")
    print("\n".join(wrong) or f"{wheel.name}: {len(inside)} files")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else None))
