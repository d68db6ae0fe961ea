"""Tries mutants in forks of one warm process, which has imported all and collected the tests once.

    python -m tests.house.forks < REQUEST

It is started by `tests.house.mutants` in a throwaway copy of the checkout, and prints one JSON
object a line. First it runs all tests of tests/unit and the seeds, in a fork, and writes down which
lines of the core each of them executes. Then it takes one mutant after the other: the changed
function is put into a fork, and there run the tests that execute the changed statement, those of
the core's own folder first, and then the seeds that do. A test or a seed that never executes the
statement goes on as without the change. Some changes cannot be made in a fork: that of a function
which ran at import, or one that takes the only `super()` out. With those, all tests and seeds run
in new processes.

A test has noticed if it fails, or goes far beyond its usual time, in a fork for it alone, and
passes there without the change.
"""

import ast
import gc
import inspect
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple, TextIO

import pytest

from tests.house.mutants import CORE, CORE_TESTS, TESTS, Mutant

OPTIONS = ("-q", "-p", "no:cacheprovider")
TIMES = 10
"""So many times its usual time may a test or a seed take, and `MORE_SECONDS` more."""
MORE_SECONDS = 10
MORE_WALL_SECONDS = 120
"""Only for one that waits for ever; long, since the machine may be busy."""
NEW_PROCESS_SECONDS = 3600
MOST_LEFT_OUT = 0.01
"""The share of tests that may fail without a change, as those of speed do on a busy machine."""
ENOUGH_CALLS = 1000
"""A function that was called so often without a line that had not run before is watched no more."""
MEMORY_BYTES = 4 * 1024**3

Place = tuple[str, int]
"""A file and a line."""


class Run(NamedTuple):
    """What is known of a test or a seed without a change."""

    name: str
    seconds: float
    lines: frozenset[Place]


Attempt = Callable[[Run, Run | None], bool]
"""Runs a test or a seed, knowing which comes next; tells whether all was well."""


class Verdict(NamedTuple):
    step: str
    "Empty: no step has noticed."
    by: str
    "The test or the seed."


# -- Which lines run -------------------------------------------------------------------------------


class Trace:
    """The lines of the core that run while it watches, in all threads that begin meanwhile."""

    def __init__(self, root: Path) -> None:
        self._root = f"{root}/"
        self._core = f"{root / CORE}/"
        self._lines: set[Place] = set()
        self._left: dict[CodeType, set[int]] = {}
        "Of each function of the core that was called: the lines not seen yet."
        self._calls: Counter[CodeType] = Counter()
        "Its calls since the last new line."

    @contextmanager
    def watching(self, lines: set[Place]) -> Iterator[None]:
        self._lines, self._left, self._calls = lines, {}, Counter()
        before = sys.gettrace()
        sys.settrace(self._called)
        threading.settrace(self._called)
        try:
            yield
        finally:
            sys.settrace(before)
            threading.settrace(None)

    def _called(self, frame: FrameType, event: str, arg: object) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith(self._core):
            return None
        left = self._left.get(code)
        if left is None:
            left = self._left[code] = {line for _, _, line in code.co_lines() if line is not None}
            self._see(code, code.co_firstlineno)
        self._calls[code] += 1
        return self._line if left and self._calls[code] <= ENOUGH_CALLS else None

    def _line(self, frame: FrameType, event: str, arg: object) -> Any:
        if event == "line" and (left := self._left.get(frame.f_code)) and frame.f_lineno in left:
            left.discard(frame.f_lineno)
            self._calls[frame.f_code] = 0
            self._see(frame.f_code, frame.f_lineno)
        return self._line

    def _see(self, code: CodeType, line: int) -> None:
        self._lines.add((code.co_filename.removeprefix(self._root), line))


def reach(text: str, mutant: Mutant) -> frozenset[Place]:
    """The lines of which one runs before the change can be noticed: from the beginning of its
    statement to its own end.
    """
    return frozenset((mutant.file, line) for line in range(_statement(text, mutant).lineno, mutant.last + 1))


def _statement(text: str, mutant: Mutant) -> ast.stmt:
    around = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.stmt) and node.lineno <= mutant.line and mutant.last <= (node.end_lineno or 0)
    ]
    return max(around, key=lambda node: (node.lineno, -(node.end_lineno or 0)))


# -- The changed function --------------------------------------------------------------------------


class Functions:
    """All functions of the core that live in this process, by the places of their code."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._found: dict[tuple[str, int, str], list[FunctionType]] = {}
        core = f"{root / CORE}/"
        for each in gc.get_objects():
            # `isinstance` would make lazy objects of Django, left by other tests, do their work.
            if type(each) is FunctionType and each.__code__.co_filename.startswith(core):
                self._found.setdefault(_place(each.__code__), []).append(each)

    def changed(self, mutant: Mutant, text: str) -> Callable[[], None] | None:
        """Return the function that makes the change in this process, or None if none can."""
        name = str(self._root / mutant.file)
        old, new = (compile(each, name, "exec", dont_inherit=True) for each in (text, mutant.applied(text)))
        code = _changed(old, new)
        functions = self._found.get(_place(code), []) if code is not None else []
        if code is None or not functions:
            return None
        if any(each.__code__.co_freevars != code.co_freevars for each in functions):
            return None

        def change() -> None:
            for each in functions:
                each.__code__ = code

        return change


def _place(code: CodeType) -> tuple[str, int, str]:
    return code.co_filename, code.co_firstlineno, code.co_qualname


def _changed(old: CodeType, new: CodeType) -> CodeType | None:
    """The code of the first function that differs and stands in no other one."""
    codes = [[each for each in code.co_consts if isinstance(each, CodeType)] for code in (old, new)]
    for before, after in zip(*codes, strict=True):
        if before != after:
            return after if after.co_flags & inspect.CO_NEWLOCALS else _changed(before, after)
    return None


# -- One run in a fork -----------------------------------------------------------------------------


def in_fork(work: Callable[[TextIO], bool]) -> tuple[bool, str]:
    """Run some work in a fork. Return whether it was well, and what it has written.

    A fork that dies was not well.
    """
    with tempfile.TemporaryFile("w+", encoding="utf-8") as out:
        pid = os.fork()
        if pid == 0:
            well = False
            try:
                os.setsid()
                _silent()
                resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
                well = work(out)
            except BaseException:  # noqa: BLE001  (whatever it is, it is told, and this process ends)
                traceback.print_exc(file=out)
            finally:
                out.flush()
                os._exit(0 if well else 1)
        _, status = os.waitpid(pid, 0)
        out.seek(0)
        written = out.read()
    # What it has started ends with it.
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    return status == 0, written


def _silent() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for each in (0, 1, 2):
        os.dup2(nothing, each)


@contextmanager
def limited(usual: float) -> Iterator[None]:
    """Die of a signal if the block takes far more than its usual time."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, TIMES * usual + MORE_SECONDS)
    signal.setitimer(signal.ITIMER_REAL, TIMES * usual + MORE_WALL_SECONDS)
    yield
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.setitimer(signal.ITIMER_REAL, 0)


# -- The warm process ------------------------------------------------------------------------------


class Warm:
    """A plugin of pytest that, instead of running the collected tests, tries mutants with them."""

    def __init__(self, root: Path, request: Any, out: TextIO) -> None:
        self._root = root
        self._mutants = [Mutant(*each) for each in request["mutants"]]
        self._seeds = range(request["seeds"])
        self._out = out
        self._trace = Trace(root)
        self._at_import: set[Place] = set()
        self._watching = self._trace.watching(self._at_import)
        self._watching.__enter__()
        self._items: dict[str, pytest.Item] = {}
        self._alone: dict[str, bool] = {}
        "Whether a test passes without a change, in a fork for it alone."

    @pytest.hookimpl(tryfirst=True)
    def pytest_load_initial_conftests(self) -> None:
        """Let a failed example be neither made shorter nor kept for the next mutant."""
        from hypothesis import Phase, settings

        settings.register_profile("mutants", database=None, phases=[Phase.explicit, Phase.generate])
        settings.load_profile("mutants")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise pytest.UsageError("the tests cannot be collected")
        if self._seeds:
            import sharding_app.testing.simulation.runs  # noqa: F401  (the forks have it then)
        self._watching.__exit__(None, None, None)
        session.config.pluginmanager.unregister(name="terminalreporter")
        self._session = session
        self._items = {item.nodeid: item for item in session.items}
        gc.unfreeze()
        functions = Functions(self._root)
        gc.freeze()
        self._tell({"tests": len(self._items), "at_import": len(self._at_import)})
        tests, seeds = self._usual(self._try_test, self._items), self._usual(self._try_seed, self._seeds)
        if tests is None or seeds is None:
            return True
        self._tell({"seconds": [round(sum(each.seconds for each in runs)) for runs in (tests, seeds)]})
        for number, mutant in enumerate(self._mutants):
            began = time.monotonic()
            verdict, how = self._judge(mutant, functions, tests, seeds)
            took = round(time.monotonic() - began, 1)
            self._tell({"number": number, "step": verdict.step, "by": verdict.by, "how": how, "took": took})
        return True

    def _judge(
        self, mutant: Mutant, functions: Functions, tests: list[Run], seeds: list[Run]
    ) -> tuple[Verdict, str]:
        path = self._root / mutant.file
        text = path.read_text(encoding="utf-8")
        places = reach(text, mutant)
        change = functions.changed(mutant, text)
        path.write_text(mutant.applied(text), encoding="utf-8")
        try:
            if change is None or places & self._at_import:
                return self._in_new_processes(), "in new processes"
            reached = [run for run in tests if run.lines & places]
            near = [run for run in reached if run.name.startswith(CORE_TESTS)]
            far = [run for run in reached if not run.name.startswith(CORE_TESTS)]
            for step, runs in (("nearest", near), ("further", far)):
                if by := self._by_tests(runs, change):
                    return Verdict(step, by), ""
            reached_by = [run for run in seeds if run.lines & places]
            if by := self._first(self._try_seed, reached_by, change):
                return Verdict("simulation", f"seed {by}"), ""
            return Verdict("", ""), f"{len(near)} + {len(far)} tests, {len(reached_by)} seeds"
        finally:
            path.write_text(text, encoding="utf-8")

    def _by_tests(self, runs: list[Run], change: Callable[[], None]) -> str:
        """Return the test that notices, the quick ones first."""
        left = sorted(runs, key=lambda run: run.seconds)
        while by := self._first(self._try_test, left, change):
            run = next(each for each in left if each.name == by)
            if self._first(self._try_test, [run], change) and self._passes_alone(run):
                return by
            left.remove(run)
        return ""

    def _passes_alone(self, run: Run) -> bool:
        if run.name not in self._alone:
            self._alone[run.name] = not self._first(self._try_test, [run], lambda: None)
        return self._alone[run.name]

    def _first(self, attempt: Attempt, runs: Sequence[Run], change: Callable[[], None]) -> str:
        """Return the first of these that fails in a fork with the change."""
        if not runs:
            return ""

        def work(out: TextIO) -> bool:
            change()
            for run, following in _with_next(runs):
                print(run.name, file=out, flush=True)
                with limited(run.seconds):
                    if not attempt(run, following):
                        return False
            return True

        well, written = in_fork(work)
        names = {run.name for run in runs}
        return "" if well else [line for line in written.splitlines() if line in names][-1]

    def _try_test(self, run: Run, following: Run | None) -> bool:
        item = self._items[run.name]
        after = self._items[following.name] if following is not None else None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        return not self._session.testsfailed

    def _try_seed(self, run: Run, following: Run | None) -> bool:
        from sharding_app.testing.simulation.runs import Job, is_direct
        from sharding_app.testing.simulation.runs import run as run_job

        seed = int(run.name)
        return run_job(Job(seed, 3 + seed % 3, direct=is_direct(seed))).broken is None

    def _usual(self, attempt: Attempt, names: Iterable[object]) -> list[Run] | None:
        """Run all without a change, and watch. None: more than a few have failed."""
        unknown = [Run(str(name), 600.0, frozenset()) for name in names]

        def work(out: TextIO) -> bool:
            for run, following in _with_next(unknown):
                lines: set[Place] = set()
                began = time.process_time()
                with limited(run.seconds), self._trace.watching(lines):
                    well = attempt(run, following)
                # Watched, it may have been too slow for a limit of its own.
                well = well or self._passes_unwatched(attempt, run)
                print(json.dumps([well, run.name, time.process_time() - began, sorted(lines)]), file=out)
            return True

        well, written = in_fork(work)
        if not well:
            self._tell({"failed": written[-400:]})
            return None
        usual = []
        failed = []
        for well, name, seconds, lines in map(json.loads, written.splitlines()):
            if well:
                usual.append(Run(name, seconds, frozenset((file, line) for file, line in lines)))
            else:
                failed.append(name)
        few = len(failed) <= MOST_LEFT_OUT * len(unknown)
        if failed:
            self._tell({"left_out" if few else "failed": failed})
        return usual if few else None

    def _passes_unwatched(self, attempt: Attempt, run: Run) -> bool:
        self._session.testsfailed = 0
        return in_fork(lambda _: attempt(run, None))[0]

    def _in_new_processes(self) -> Verdict:
        pytest_ = (sys.executable, "-m", "pytest", "-x", *OPTIONS)
        steps: list[tuple[str, list[tuple[str, ...]]]] = [
            ("nearest", [(*pytest_, CORE_TESTS)]),
            ("further", [(*pytest_, TESTS, f"--ignore={CORE_TESTS}")]),
            ("simulation", list(simulations(self._seeds))),
        ]
        for step, commands in steps:
            if any(fails(command, self._root) for command in commands):
                return Verdict(step, "")
        return Verdict("", "")

    def _tell(self, what: dict[str, object]) -> None:
        shutil.rmtree(self._root / ".hypothesis", ignore_errors=True)
        print(json.dumps(what), file=self._out, flush=True)


def _with_next(runs: Sequence[Run]) -> Iterator[tuple[Run, Run | None]]:
    return zip(runs, (*runs[1:], None), strict=False)


def simulations(seeds: range) -> Iterator[tuple[str, ...]]:
    """The commands that run these seeds, ten at a time."""
    simulate = (sys.executable, "manage.py", "sharding_simulate", "--json", "--processes", "1")
    for first in range(0, len(seeds), 10):
        yield (*simulate, "--seed", str(first), "--seeds", str(min(10, len(seeds) - first)))


def fails(command: Sequence[str], folder: Path) -> bool:
    """Run a command in a folder; tell whether it fails, or goes on for ever."""
    # A file that is changed twice within a second would be taken for what was compiled before.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    running = subprocess.Popen(
        command, cwd=folder, env=environment, start_new_session=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES)),
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        return running.wait(NEW_PROCESS_SECONDS) != 0
    except subprocess.TimeoutExpired:
        return True
    finally:
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()


def main() -> int:
    request = json.load(sys.stdin)
    sys.dont_write_bytecode = True
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)
        return int(pytest.main([*OPTIONS, TESTS], plugins=[Warm(Path.cwd(), request, out)]))


if __name__ == "__main__":
    sys.exit(main())
