"""Ask pip whether requirements.txt resolves on every platform that the README promises.

    python .ci/check_pins.py [--only linux-x86_64] [FILE]

For each platform and Python, pip is asked (a dry run: nothing is downloaded but metadata) for a wheel of every pin. pip
evaluates markers for the machine it runs on, whatever `--platform` says, so they are evaluated here; and from what
the packages say they need, each requirement must be pinned, and fit its pin.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
GLIBC = ("2_28", "2_27", "2_26", "2_24", "2_17")
SYSTEMS = {
    "linux-x86_64": (
        ("linux", "Linux", "x86_64"),
        [*(f"manylinux_{v}_x86_64" for v in GLIBC), "manylinux2014_x86_64"],
    ),
    "linux-aarch64": (
        ("linux", "Linux", "aarch64"),
        [*(f"manylinux_{v}_aarch64" for v in GLIBC), "manylinux2014_aarch64"],
    ),
    "macos-arm64": (("darwin", "Darwin", "arm64"), ["macosx_14_0_arm64"]),
}


@dataclass(frozen=True, slots=True)
class Target:
    """One platform with one Python."""

    system: str
    python: str

    @property
    def environment(self) -> dict[str, str]:
        """Return the values of the markers there."""
        (platform, name, machine), _ = SYSTEMS[self.system]
        return {
            "implementation_name": "cpython",
            "implementation_version": f"{self.python}.0",
            "os_name": "posix",
            "platform_machine": machine,
            "platform_python_implementation": "CPython",
            "platform_release": "",
            "platform_system": name,
            "platform_version": "",
            "python_full_version": f"{self.python}.0",
            "python_version": self.python,
            "sys_platform": platform,
        }

    def needs(self, requirement: Requirement, extras: set[str]) -> bool:
        """Tell whether a requirement counts here, for a package that is wanted with these extras."""
        if requirement.marker is None:
            return True
        return any(
            requirement.marker.evaluate({**self.environment, "extra": extra}) for extra in extras | {""}
        )


def read_pins(file: Path) -> tuple[list[Requirement], list[str]]:
    """Return the pins, and what is wrong with the file itself."""
    lines = [line.strip() for line in file.read_text().splitlines()]
    problems = [] if lines[0] == "--only-binary=:all:" else ["the first line is not --only-binary=:all:"]
    pins = [Requirement(line) for line in lines[1:] if line and not line.startswith("#")]
    loose = [str(pin) for pin in pins if not pin.url and [each.operator for each in pin.specifier] != ["=="]]
    return pins, problems + [f"not pinned: {pin}" for pin in loose]


def ask_pip(target: Target, pins: list[Requirement], work: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the metadata of the wheels that pip would take."""
    wanted, report = (
        work / f"{target.system}-{target.python}.txt",
        work / f"{target.system}-{target.python}.json",
    )
    lines = [f"{pin.name}{''.join(f'[{extra}]' for extra in pin.extras)}{pin.specifier}" for pin in pins]
    wanted.write_text("--only-binary=:all:\n" + "\n".join(lines) + "\n")
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--dry-run",
        "--no-deps",
        "--ignore-installed",
    ]
    command += ["--only-binary=:all:", "--implementation=cp", f"--python-version={target.python}"]
    command += [f"--platform={tag}" for tag in SYSTEMS[target.system][1]]
    command += [f"--target={work / 'nowhere'}", f"--report={report}", f"--requirement={wanted}"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if answer.returncode != 0:
        return [], answer.stderr.strip().splitlines()[-3:] or [f"pip ended with {answer.returncode}"]
    installs: list[dict[str, Any]] = json.loads(report.read_text())["install"]
    return [entry["metadata"] for entry in installs], []


def unmet(target: Target, pins: list[Requirement], found: list[dict[str, Any]]) -> list[str]:
    """Return what the wheels need that no pin gives; extras spread from package to package."""
    versions = {canonicalize_name(each["name"]): str(each["version"]) for each in found}
    needs = {
        canonicalize_name(each["name"]): [Requirement(text) for text in each.get("requires_dist", [])]
        for each in found
    }
    extras = {name: set[str]() for name in needs}
    for pin in pins:
        extras[canonicalize_name(pin.name)] |= pin.extras
    problems: dict[str, None] = {}
    while True:
        before = sum(map(len, extras.values()))
        for name, requirements in needs.items():
            for each in requirements:
                other = canonicalize_name(each.name)
                if not target.needs(each, extras[name]):
                    continue
                if other not in versions:
                    problems[f"{name} needs {each}, which is not pinned"] = None
                elif not each.specifier.contains(versions[other], prereleases=True):
                    problems[f"{name} needs {each}, but {versions[other]} is pinned"] = None
                else:
                    extras[other] |= each.extras
        if sum(map(len, extras.values())) == before:
            return list(problems)


def check(target: Target, pins: list[Requirement], work: Path) -> list[str]:
    """Return what is wrong on one target."""
    here = [pin for pin in pins if target.needs(pin, set())]
    found, problems = ask_pip(target, here, work)
    return problems or unmet(target, here, found)


def main() -> int:
    """Check all targets, two at a time; print one line for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", nargs="?", type=Path, default=ROOT / "requirements.txt")
    parser.add_argument("--only", choices=SYSTEMS)
    options = parser.parse_args()
    pins, problems = read_pins(options.file)
    targets = [
        Target(system, python) for system in SYSTEMS for python in PYTHONS if options.only in {None, system}
    ]
    for problem in problems:
        print(f"{options.file.name}: {problem}")
    with tempfile.TemporaryDirectory() as work, ThreadPoolExecutor(2) as pool:
        for target, wrong in zip(
            targets, pool.map(lambda each: check(each, pins, Path(work)), targets), strict=True
        ):
            print(f"{target.system} Python {target.python}: {'ok' if not wrong else ''}", flush=True)
            for line in wrong:
                print(f"    {line}")
            problems += wrong
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
