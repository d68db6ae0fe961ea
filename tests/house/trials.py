"""Takes the behaviour of each row of docs/conformance.md out of the code, and looks whether the
row's tests notice.

    python -m tests.house.trials [ROW ...] [--fast] [--write]

tests/house/trials.toml says for each row what is taken out: a file, text that stands in it exactly
once, and what stands there instead. Rows may be named by their beginning: `A1` is all of A1. A
trial is made in a copy of this checkout under the folder for temporary files, and only the tests
that the row names are run: first all of them in the unchanged copy, where they have to pass, then
those of one trial at a time. A row is shown if each of its tests fails: a change that cannot run
at all, as an error like NameError tells, shows nothing. `--fast` leaves out the tests that take a
cluster of processes, `--write` keeps what came out in docs/conformance-trials.md.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple
from xml.etree import ElementTree as ET

from tests.house.conformance import PAGE, ROOT, NamedTest, Row, rows

DATA = Path(__file__).with_name("trials.toml")
TOLD = ROOT / "docs" / "conformance-trials.md"
SLOW = "tests/acceptance/"
LIMIT_SECONDS = 300.0
SLOW_LIMIT_SECONDS = 1200.0
CANNOT_RUN = ("AttributeError", "ImportError", "NameError", "SyntaxError", "TypeError", "UnboundLocalError")

HEAD = """# Trials of the conformance rows

This page shows whether the test that a row of [conformance](conformance.md) names really tests the
row. For each row, the behaviour was taken out of the code, and the test had to fail.
`python -m tests.house.trials --write` repeats the trials and writes this page. That takes about an
hour beside other work; `--fast` leaves out the tests with processes, and
`python -m tests.house.trials B2` tries some rows. The exact changes are in
`tests/house/trials.toml`. Each change is made in a throwaway copy, and the tests have to pass there
before it. The rows were last tried as a whole on 25 November 2026. CI compares the data with the
code, and tries none.

A row with several tests, or with several behaviours, has several lines.

| row | behaviour that was taken out | of | tests that then fail |
|---|---|---|---|
"""

Outcome = Literal["passed", "failed", "cannot run", "missing"]


class Trial(NamedTuple):
    """One row, one change."""

    row: str
    out: str
    "What is taken out, in words."
    file: str
    old: str
    new: str
    tests: tuple[NamedTest, ...]

    @property
    def slow(self) -> bool:
        return any(test.file.startswith(SLOW) for test in self.tests)

    def applied(self, text: str) -> str:
        """The file's text without the behaviour."""
        if text.count(self.old) != 1:
            raise ValueError(
                f"{self.file} has the text to replace {text.count(self.old)} times: change tests/house/*.toml with it"
            )
        return text.replace(self.old, self.new)

    @property
    def change(self) -> tuple[str, str, str]:
        return self.file, self.old, self.new

    def line(self, fate: str) -> str:
        return f"| {self.row} | {self.out} | `{self.file.removeprefix('sharding_app/')}` | {fate} |"


def read(data: str, page: str) -> list[Trial]:
    """All trials in the order of the page: an entry of the data may serve several rows."""
    found = {row.id: row for row in rows(page)}
    made: list[Trial] = []
    for entry in tomllib.loads(data)["trial"]:
        for name in entry["rows"]:
            row = found[name]
            tests = tuple(_chosen(row, entry.get("tests")))
            made.append(Trial(name, entry["out"], entry["file"], entry["old"], entry["new"], tests))
    order = list(found)
    return sorted(made, key=lambda trial: order.index(trial.row))


def _chosen(row: Row, names: list[str] | None) -> Iterator[NamedTest]:
    """Those of the row's tests that these names are the end of; all, if there are none."""
    for name in names or [""]:
        chosen = [test for test in row.tests if test.id.endswith(name)]
        if not chosen:
            raise ValueError(f"{row.id} names no test {name!r}")
        yield from chosen


def faults(trials: Sequence[Trial], page: str, root: Path = ROOT) -> list[str]:
    """What is wrong with the data: each test of each row needs a trial that can be made."""
    tried = {(trial.row, test) for trial in trials for test in trial.tests}
    wrong = [
        f"{row.id}: nothing is taken out to try {test.id}"
        for row in rows(page)
        for test in row.tests
        if (row.id, test) not in tried
    ]
    return wrong + cannot_be_made(trials, root)


def cannot_be_made(trials: Sequence[Trial], root: Path = ROOT) -> list[str]:
    """Which trials change text that is not there, or to what is no Python."""
    wrong = []
    for trial in trials:
        try:
            applied = trial.applied((root / trial.file).read_text(encoding="utf-8"))
            if trial.file.endswith(".py"):
                compile(applied, trial.file, "exec")
        except (ValueError, SyntaxError, OSError) as error:
            wrong.append(f"{trial.row}: {trial.out}: {error}")
    return wrong


class Copy:
    """A copy of this checkout that may be changed. It uses the servers of the original's data
    folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        listed = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, check=True
        )
        for name in os.fsdecode(listed.stdout).split("\0"):
            if name and (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, folder / name)
        (ROOT / ".data").mkdir(mode=0o700, exist_ok=True)
        (folder / ".data").symlink_to(ROOT / ".data")

    @contextmanager
    def without(self, trial: Trial) -> Iterator[None]:
        """Take a trial's behaviour out for as long as the block lasts."""
        text = (self._folder / trial.file).read_text(encoding="utf-8")
        with self.changed(trial.file, trial.applied(text)):
            yield

    @contextmanager
    def changed(self, file: str, text: str) -> Iterator[None]:
        """Let a file have another text for as long as the block lasts."""
        path = self._folder / file
        before = path.read_text(encoding="utf-8")
        path.write_text(text, encoding="utf-8")
        try:
            yield
        finally:
            path.write_text(before, encoding="utf-8")

    def run(self, tests: Sequence[NamedTest]) -> dict[NamedTest, tuple[Outcome, str]]:
        """Run these tests; return how each ended, and the first line of what it said."""
        report = self._folder / "report.xml"
        report.unlink(missing_ok=True)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
        # A file that is changed twice within a second would be taken for what was compiled before.
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        limit = SLOW_LIMIT_SECONDS if any(test.file.startswith(SLOW) for test in tests) else LIMIT_SECONDS
        try:
            ended = subprocess.run(
                [*command, *(test.id for test in tests)],
                cwd=self._folder, env=environment, capture_output=True, text=True, timeout=limit, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return dict.fromkeys(tests, ("cannot run", f"no end within {limit:g} s"))
        if not report.exists():
            return dict.fromkeys(tests, ("missing", (ended.stdout + ended.stderr)[-400:]))
        return {test: outcome_of(test, ET.parse(report)) for test in tests}  # noqa: S314  (our own)


def outcome_of(test: NamedTest, report: "ET.ElementTree[ET.Element]") -> tuple[Outcome, str]:
    """How a test ended in all of its cases: it has failed if one has."""
    place = f"{test.file.removesuffix('.py').replace('/', '.')}.{test.name.replace('::', '.')}"
    cases = [
        case
        for case in report.iter("testcase")
        if re.sub(r"\[.*", "", f"{case.get('classname')}.{case.get('name')}") == place
        and (not test.part or f"[{test.part}]" in str(case.get("name")))
    ]
    if not cases:
        return "missing", "it did not run"
    said = [str(each.get("message")) for case in cases for each in case.iter("failure")]
    if said:
        # One case that fails by an assertion is enough.
        said.sort(key=lambda message: message.startswith(CANNOT_RUN))
        return "cannot run" if said[0].startswith(CANNOT_RUN) else "failed", _short(said[0])
    if errors := [str(each.get("message")) for case in cases for each in case.iter("error")]:
        return "cannot run", _short(errors[0])
    return "passed", ""


def _short(text: str) -> str:
    """The beginning and the end of it: the fault tests say at the end what is broken."""
    text = " ".join(text.split())
    return text if len(text) <= 240 else f"{text[:120]} ... {text[-120:]}"


def fate(outcomes: dict[NamedTest, tuple[Outcome, str]]) -> str:
    """What the page says of one trial."""
    told = []
    for test, (outcome, _) in outcomes.items():
        name = f"`{test.name}{f'[{test.part}]' if test.part else ''}`"
        told.append(name if outcome == "failed" else f"**{outcome}**: {name}")
    return ", ".join(told)


def told(page: str) -> dict[tuple[str, str], str]:
    """By row and what was taken out: what the page says came of it."""
    _, _, table = page.partition("|---|---|---|---|\n")
    lines = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("| ")]
    return {(cells[0].strip(), cells[1].strip()): cells[3].strip() for cells in lines if len(cells) == 4}


def write(trials: Sequence[Trial], fates: dict[tuple[str, str], str], head: str = HEAD) -> str:
    """The page; a trial that was never made says so."""
    lines = [trial.line(fates.get((trial.row, trial.out), "not tried yet")) for trial in trials]
    return head + "".join(f"{line}\n" for line in lines)


def _by_change(trials: Sequence[Trial]) -> list[list[Trial]]:
    """Those that change the same are made together."""
    groups: dict[tuple[str, str, str], list[Trial]] = {}
    for trial in trials:
        groups.setdefault(trial.change, []).append(trial)
    return list(groups.values())


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("rows", nargs="*", metavar="ROW", help="rows by their beginning; without any, all")
    parser.add_argument("--fast", action="store_true", help="leave out the tests that take processes")
    parser.add_argument("--write", action="store_true", help="write docs/conformance-trials.md")
    options = parser.parse_args(arguments)
    page = PAGE.read_text(encoding="utf-8")
    trials = read(DATA.read_text(encoding="utf-8"), page)
    beginnings = tuple(options.rows) or ("",)
    if wrong := [fault for fault in faults(trials, page) if fault.startswith(beginnings)]:
        print("\n".join(wrong))
        return 1
    chosen = [
        trial for trial in trials if trial.row.startswith(beginnings) and not (options.fast and trial.slow)
    ]
    fates = told(TOLD.read_text(encoding="utf-8"))

    def keep() -> None:
        if options.write:
            TOLD.write_text(write(trials, fates), encoding="utf-8")

    return carry_out(chosen, fates, keep)


def carry_out(chosen: Sequence[Trial], fates: dict[tuple[str, str], str], keep: Callable[[], None]) -> int:
    """Make these trials and put down what comes of them; `keep` is called after each change.
    Returns an exit code.
    """
    if not chosen:
        print("nothing of that is chosen")
        return 2
    with tempfile.TemporaryDirectory() as place:
        copy = Copy(Path(place))
        before = copy.run(sorted({test for trial in chosen for test in trial.tests}))
        if bad := {test: outcome for test, outcome in before.items() if outcome[0] != "passed"}:
            for test, (outcome, said) in bad.items():
                print(f"{test.id} {outcome} without any change: {said}")
            return 1
        survived = 0
        for trials_of_change in _by_change(chosen):
            with copy.without(trials_of_change[0]):
                outcomes = copy.run(sorted({test for trial in trials_of_change for test in trial.tests}))
            for trial in trials_of_change:
                fates[trial.row, trial.out] = fate({test: outcomes[test] for test in trial.tests})
                for test in trial.tests:
                    outcome, said = outcomes[test]
                    survived += outcome != "failed"
                    print(f"{trial.row:7} {outcome:10} {trial.out}\n{'':19}{test.name}: {said}", flush=True)
            keep()
    print(f"{len(chosen)} trials, {survived} tests that did not notice")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
