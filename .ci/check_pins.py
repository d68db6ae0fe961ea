"""Write the locks from pyproject.toml, and ask pip whether they resolve on every platform that the
README promises.

    python .ci/check_pins.py [--only linux-x86_64] [FILE]
    python .ci/check_pins.py --write [--upgrade] [FILE]     (needs uv, of .ci/requirements.txt)

`requirements.txt` locks the package with all extras and the dependency group `dev`;
`.ci/requirements.txt` locks the group `tools`. `--write` asks uv for the versions and for the
hashes of all wheels that fit one of the platforms. Versions that are locked already stay where they
fit, except with `--upgrade`.

For each platform and Python, pip is asked (a dry run: nothing is downloaded but metadata) for a
wheel of every pin. pip evaluates markers for the machine it runs on, whatever `--platform` says, so
they are evaluated here. Each requirement of pyproject.toml and of the packages must be pinned, and
fit its pin; no other package is pinned. The wheel that pip would take must have its hash in the
file: pip refuses every other one.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.tags import Tag
from packaging.utils import canonicalize_name, parse_wheel_filename

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

    def needs(self, marker: Marker | None, extras: set[str]) -> bool:
        """Tell whether a requirement counts here, for a package that is wanted with these
        extras.
        """
        if marker is None:
            return True
        return any(marker.evaluate({**self.environment, "extra": extra}) for extra in extras | {""})


TARGETS = [Target(system, python) for system in SYSTEMS for python in PYTHONS]
OPTIONS = ("--only-binary=:all:", "--require-hashes")


@dataclass(frozen=True, slots=True)
class Pin:
    """One requirement of the file, and the SHA-256 of each file that may be taken for it."""

    requirement: Requirement
    hashes: frozenset[str]


def logical_lines(text: str) -> list[str]:
    """Return the lines as pip reads them: a backslash at the end joins two."""
    return [" ".join(line.split()) for line in text.replace("\\\n", " ").splitlines()]


def read_pins(file: Path) -> tuple[list[Pin], list[str]]:
    """Return the pins, and what is wrong with the file itself."""
    lines = logical_lines(file.read_text())
    problems = [f"the line {option} is missing" for option in OPTIONS if option not in lines]
    pins = []
    for line in lines:
        if line and not line.startswith(("#", "--")):
            text, *hashes = line.split(" --hash=sha256:")
            pins.append(Pin(Requirement(text), frozenset(hashes)))
    for pin in pins:
        if not pin.requirement.url:
            if [each.operator for each in pin.requirement.specifier] != ["=="]:
                problems.append(f"not pinned: {pin.requirement}")
            if not pin.hashes:
                problems.append(f"no hashes: {pin.requirement}")
    return pins, problems


def fits(wheel: str) -> bool:
    """Tell whether a wheel may be installed on a platform of ours, of whatever release."""
    return any(_fits(tag) for tag in parse_wheel_filename(wheel)[3])


def _fits(tag: Tag) -> bool:
    number = re.fullmatch(r"cp3(\d+)", tag.interpreter)
    new_enough = number is not None and (int(number[1]) >= 11 or tag.abi == "abi3")
    python = tag.interpreter == "py3" or (new_enough and not tag.abi.endswith("t"))
    platform = r"any|manylinux\w*_(x86_64|aarch64)|macosx_\d+_\d+_(arm64|universal2)"
    return python and re.fullmatch(platform, tag.platform) is not None


LOCKS: dict[Path, tuple[str, list[str]]] = {
    ROOT / "requirements.txt": ("dev", ["--all-extras", "pyproject.toml"]),
    ROOT / ".ci" / "requirements.txt": ("tools", []),
}
"""For each lock its dependency group, and how uv is asked for what it holds besides."""


def roots(file: Path) -> list[Requirement]:
    """Return the requirements in pyproject.toml that a lock is made from."""
    text = tomllib.loads((ROOT / "pyproject.toml").read_text())
    group, package = LOCKS[file]
    found = members(text["dependency-groups"], group)
    if package:
        found += text["project"]["dependencies"]
        for each in text["project"]["optional-dependencies"].values():
            found += each
    return [Requirement(each) for each in found]


def members(groups: dict[str, list[Any]], name: str) -> list[str]:
    """Return the requirements of a dependency group and of those that it includes."""
    found: list[str] = []
    for each in groups[name]:
        found += [each] if isinstance(each, str) else members(groups, each["include-group"])
    return found


def write_lock(file: Path, upgrade: bool) -> None:
    """Ask uv for what a lock has to hold, and write it below the file's first lines."""
    group, package = LOCKS[file]
    pins, _ = read_pins(file)
    known = [str(pin.requirement) for pin in pins if not pin.requirement.url]
    uv = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal", "--no-config"]
    uv += ["--format=pylock.toml", f"--python-version={PYTHONS[0]}", "--only-binary=:all:"]
    uv += [f"--group=pyproject.toml:{group}", *package]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as constraints:
        constraints.write("\n".join([] if upgrade else known))
        constraints.flush()
        uv += [f"--constraints={constraints.name}"]
        answer = subprocess.run(uv, capture_output=True, text=True, check=False, cwd=ROOT)
    if answer.returncode != 0:
        sys.exit(answer.stderr)
    head = file.read_text().partition("\n\n")[0]
    locked = [line for each in tomllib.loads(answer.stdout)["packages"] if (line := pinned(each))]
    file.write_text("\n".join([head, "", *locked]) + "\n")


def pinned(package: dict[str, Any]) -> str | None:
    """Return a package's line, with a marker where only some targets need it; None where no target
    does.
    """
    marker = Marker(package["marker"]) if "marker" in package else None
    needed = [target for target in TARGETS if target.needs(marker, set())]
    if not needed:
        return None
    where = f" ; {marker}" if len(needed) < len(TARGETS) else ""
    wheels = [
        wheel["hashes"]["sha256"]
        for wheel in package["wheels"]
        if fits(wheel["url"].rpartition("/")[2].partition("#")[0])
    ]
    line = f"{package['name']}=={package['version']}{where}"
    return " \\\n    ".join([line, *(f"--hash=sha256:{each}" for each in sorted(wheels))])


def ask_pip(target: Target, pins: list[Requirement], work: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Return what pip would install: for each wheel its metadata and its hash."""
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
    return installs, []


def unnamed(pins: list[Pin], installs: list[dict[str, Any]]) -> list[str]:
    """Return the wheels that pip would take, and whose hash the file does not have."""
    known = {canonicalize_name(pin.requirement.name): pin.hashes for pin in pins}
    return [
        f"{each['metadata']['name']}: the hash of {each['download_info']['url'].rpartition('/')[2]} is missing:"
        " run .ci/check_pins.py --write"
        for each in installs
        if each["download_info"]["archive_info"]["hashes"]["sha256"]
        not in known[canonicalize_name(each["metadata"]["name"])]
    ]


def unmet(
    target: Target, wanted: list[Requirement], pins: list[Requirement], found: list[dict[str, Any]]
) -> list[str]:
    """Return what is needed and not pinned, and what is pinned and not needed; extras spread from
    package to package.
    """
    versions = {canonicalize_name(each["name"]): str(each["version"]) for each in found}
    needs = {
        canonicalize_name(each["name"]): [Requirement(text) for text in each.get("requires_dist", [])]
        for each in found
    }
    extras: dict[str, set[str]] = {}
    problems: dict[str, None] = {}
    asked = [("pyproject.toml", each) for each in wanted if target.needs(each.marker, set())]
    while asked:
        name, each = asked.pop()
        other = canonicalize_name(each.name)
        if other not in versions:
            problems[f"{name} needs {each}, which is not pinned"] = None
            continue
        if not each.specifier.contains(versions[other], prereleases=True):
            problems[f"{name} needs {each}, but {versions[other]} is pinned"] = None
        if other not in extras or not each.extras <= extras[other]:
            extras[other] = extras.get(other, set()) | each.extras
            asked += [(other, need) for need in needs[other] if target.needs(need.marker, extras[other])]
    needless = {canonicalize_name(pin.name) for pin in pins} - set(extras)
    return [*problems, *(f"nothing needs {name}" for name in sorted(needless))]


def check(target: Target, wanted: list[Requirement], pins: list[Pin], work: Path) -> list[str]:
    """Return what is wrong on one target."""
    here = [pin for pin in pins if target.needs(pin.requirement.marker, set())]
    named = [pin.requirement for pin in here]
    installs, problems = ask_pip(target, named, work)
    if problems:
        return problems
    found = [each["metadata"] for each in installs]
    return unnamed(here, installs) + unmet(target, wanted, named, found)


def main() -> int:
    """Check all targets, two at a time; print one line for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", nargs="?", type=Path, default=ROOT / "requirements.txt")
    parser.add_argument("--only", choices=SYSTEMS)
    parser.add_argument("--write", action="store_true", help="write the file from pyproject.toml")
    parser.add_argument(
        "--upgrade", action="store_true", help="with --write: take the newest versions that fit"
    )
    options = parser.parse_args()
    file = options.file.resolve()
    if file not in LOCKS:
        parser.error(f"{options.file} is no lock: {', '.join(str(each.relative_to(ROOT)) for each in LOCKS)}")
    if options.write:
        write_lock(file, options.upgrade)
        return 0
    pins, problems = read_pins(file)
    wanted = roots(file)
    targets = [target for target in TARGETS if options.only in {None, target.system}]
    for problem in problems:
        print(f"{options.file}: {problem}")
    with tempfile.TemporaryDirectory() as work, ThreadPoolExecutor(2) as pool:
        for target, wrong in zip(
            targets, pool.map(lambda each: check(each, wanted, pins, Path(work)), targets), strict=True
        ):
            print(f"{target.system} Python {target.python}: {'ok' if not wrong else ''}", flush=True)
            for line in wrong:
                print(f"    {line}")
            problems += wrong
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
