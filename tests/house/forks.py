"""Tries mutants in forks of one warm process, which has imported all and collected the tests once.

    python -m tests.house.forks < REQUEST

It is started by `tests.house.mutants` in a throwaway copy of the checkout, and prints one JSON
object a line. The core is loaded with a mark before each statement of its functions. First the
core's own tests run in a fork, so it is known which statements each of them reaches. Then it takes
one mutant after the other: the changed function is put into a fork, and there run the tests that
reach the changed statement. With the mutants that are left the same is done with the other tests of
tests/unit, and then with the seeds. A test or a seed that never reaches the statement goes on as
without the change. Some changes cannot be made in a fork: one that takes the only `super()` out of
a function. A statement that runs at import has run without the change. With those, if nothing has
noticed, all tests and seeds run in new processes.

A test has noticed if it fails, or goes far beyond its usual time, in a fork for it alone, and
passes there without the change.
"""

import ast
import builtins
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
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple, TextIO

import pytest

from tests.house.mutants import CORE, CORE_TESTS, TESTS, Mutant

OPTIONS = ("-q", "-p", "no:cacheprovider")
TIMES = 5
"""This number of times its usual time may a test or a seed take, and `MORE_SECONDS` more."""
MORE_SECONDS = 2
MORE_WALL_SECONDS = 120
"""Only for one that waits for ever; long, since the machine may be busy."""
NEW_PROCESS_SECONDS = 3600
MOST_LEFT_OUT = 0.01
"""The share of tests that may fail without a change, as those of speed do on a busy machine."""
MEMORY_BYTES = 4 * 1024**3

CORE_MODULES = ".".join(CORE.parts)

Place = tuple[str, int]
"""A file, and the first line of a statement."""


class Run(NamedTuple):
    """What is known of a test or a seed without a change."""

    name: str
    seconds: float
    places: frozenset[Place]
    "The statements of the core that it reaches."


Attempt = Callable[[Run, Run | None], bool]
"""Runs a test or a seed, knowing which comes next; tells whether all was well."""


# -- Which statements run --------------------------------------------------------------------------

MARK = "__reached__"
"""The name, among the builtins, of the function that each statement of the core calls before it."""


def marked(text: str, file: str) -> ast.Module:
    """The module, with a call before each statement of its functions that tells the place."""
    tree = ast.parse(text)
    done: set[int] = set()
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for node in ast.walk(function):
            for name in ("body", "orelse", "finalbody"):
                body = getattr(node, name, None)
                if isinstance(body, list) and id(body) not in done:
                    done.add(id(body))
                    body[:] = [each for statement in body for each in (*_mark(statement, file), statement)]
    return ast.fix_missing_locations(tree)


def _mark(statement: ast.stmt, file: str) -> Iterator[ast.stmt]:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return  # a docstring stays the first
    place = ast.Constant((file, statement.lineno))  # type: ignore[arg-type]  # typeshed knows no tuples
    call = ast.Call(ast.Name(MARK, ast.Load()), [place], [])
    yield ast.copy_location(ast.Expr(call), statement)


class Marking(SourceFileLoader):
    """Loads a module of the core with its marks."""

    def source_to_code(self, data: Any, path: Any, *, _optimize: int = -1) -> CodeType:  # type: ignore[override]
        file = Path(path).relative_to(Path.cwd()).as_posix()
        return compile(marked(bytes(data).decode(), file), path, "exec", dont_inherit=True)


class Finder:
    """Lets the modules of the core be loaded with marks."""

    @staticmethod
    def find_spec(name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path) if name.startswith(CORE_MODULES) else None
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = Marking(spec.loader.name, spec.loader.path)
        return spec


@contextmanager
def watching(places: set[Place]) -> Iterator[None]:
    """Put down the statements of the core that run, in whatever thread."""
    before = getattr(builtins, MARK)
    setattr(builtins, MARK, places.add)
    try:
        yield
    finally:
        setattr(builtins, MARK, before)


def reach(text: str, mutant: Mutant) -> Place:
    """The statement in which the change is made: what does not reach it cannot notice."""
    around = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.stmt) and node.lineno <= mutant.line and mutant.last <= (node.end_lineno or 0)
    ]
    return mutant.file, max(around, key=lambda node: (node.lineno, -(node.end_lineno or 0))).lineno


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

    def without_marks(self) -> Callable[[], None]:
        """Return the function that lets all functions in this process be those of the files."""
        plain: list[tuple[FunctionType, CodeType]] = []
        for file in {place[0] for place in self._found}:
            codes = [compile(Path(file).read_text(encoding="utf-8"), file, "exec", dont_inherit=True)]
            while codes:
                code = codes.pop()
                codes += [each for each in code.co_consts if isinstance(each, CodeType)]
                plain += [(function, code) for function in self._found.get(_place(code), ())]

        def change() -> None:
            for function, code in plain:
                function.__code__ = code

        return change

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
        self._left_out: set[str] = set()
        "Tests and seeds that fail without a change."
        self._at_import: set[Place] = set()
        setattr(builtins, MARK, self._at_import.add)
        sys.meta_path.insert(0, Finder())
        self._items: dict[str, pytest.Item] = {}
        self._alone: dict[str, bool] = {}
        "Whether a test passes without a change, in a fork for it alone."
        self._lived_through: list[list[str]] = [[] for _ in self._mutants]

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
        setattr(builtins, MARK, bool)  # a function that does nothing
        session.config.pluginmanager.unregister(name="terminalreporter")
        self._session = session
        self._items = {item.nodeid: item for item in session.items}
        gc.unfreeze()
        self._functions = Functions(self._root)
        self._without_marks = self._functions.without_marks()
        gc.freeze()
        self._tell({"tests": len(self._items), "at_import": len(self._at_import)})
        near = [name for name in self._items if name.startswith(CORE_TESTS)]
        far = [name for name in self._items if name not in near]
        left = list(range(len(self._mutants)))
        # The cheap ones first: most mutants are judged before the long ones are even watched.
        for step, names in (("nearest", near), ("further", far)):
            runs = self._usual(self._try_test, names)
            if runs is None:
                return True
            left = [number for number in left if not self._noticed_by(step, runs, number)]
        seeds = self._usual(self._try_seed, self._seeds if left else ())
        for number in left:
            if seeds is not None:
                self._last_look(seeds, number)
        return True

    def _noticed_by(self, step: str, tests: list[Run], number: int) -> bool:
        """Try a mutant with some tests; tell what came out."""
        began = time.monotonic()
        mutant = self._mutants[number]
        place, change = self._change(mutant)
        if change is None:
            return False
        reached = [run for run in tests if place in run.places]
        with self._written(mutant):
            if by := self._by_tests(reached, change):
                self._tell_verdict(number, step, by, "", began)
                return True
        self._lived_through[number].append(f"{len(reached)} tests")
        self._tell({"number": number, "so_far": ", ".join(self._lived_through[number])})
        return False

    def _last_look(self, seeds: list[Run], number: int) -> None:
        """Try a mutant, which the tests in this process let live, with all that is left."""
        began = time.monotonic()
        mutant = self._mutants[number]
        place, change = self._change(mutant)
        with self._written(mutant):
            if change is not None:
                reached = sorted((run for run in seeds if place in run.places), key=lambda run: run.seconds)
                if by := self._first(self._try_seed, reached, change):
                    self._tell_verdict(number, "simulation", f"seed {by}", "", began)
                    return
                self._lived_through[number].append(f"{len(reached)} seeds")
            if change is None or place in self._at_import:
                self._tell_verdict(number, self._in_new_processes(), "", "in new processes", began)
            else:
                self._tell_verdict(number, "", "", ", ".join(self._lived_through[number]), began)

    def _change(self, mutant: Mutant) -> tuple[Place, Callable[[], None] | None]:
        """Return where a mutant is, and the function that makes it in this process, if one can."""
        text = (self._root / mutant.file).read_text(encoding="utf-8")
        place, change = reach(text, mutant), self._functions.changed(mutant, text)
        if change is None:
            return place, None

        def both() -> None:
            self._without_marks()
            change()

        return place, both

    @contextmanager
    def _written(self, mutant: Mutant) -> Iterator[None]:
        """Let the file be the changed one, for processes that a test starts."""
        path = self._root / mutant.file
        text = path.read_text(encoding="utf-8")
        path.write_text(mutant.applied(text), encoding="utf-8")
        try:
            yield
        finally:
            path.write_text(text, encoding="utf-8")

    def _tell_verdict(self, number: int, step: str, by: str, how: str, began: float) -> None:
        took = round(time.monotonic() - began, 1)
        self._tell({"number": number, "step": step, "by": by, "how": how, "took": took})

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
            self._alone[run.name] = not self._first(self._try_test, [run], self._without_marks)
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
                places: set[Place] = set()
                began = time.process_time()
                with limited(run.seconds), watching(places):
                    well = attempt(run, following)
                # Watched, it may have been too slow for a limit of its own.
                well = well or self._passes_unwatched(attempt, run)
                print(json.dumps([well, run.name, time.process_time() - began, sorted(places)]), file=out)
            return True

        well, written = in_fork(work)
        if not well:
            self._tell({"failed": written[-400:]})
            return None
        usual = []
        failed = []
        for well, name, seconds, places in map(json.loads, written.splitlines()):
            if well:
                usual.append(Run(name, seconds, frozenset((file, line) for file, line in places)))
            else:
                failed.append(name)
        few = len(failed) <= MOST_LEFT_OUT * len(unknown)
        self._left_out |= set(failed)
        if failed:
            self._tell({"left_out" if few else "failed": failed})
        return usual if few else None

    def _passes_unwatched(self, attempt: Attempt, run: Run) -> bool:
        self._session.testsfailed = 0
        return in_fork(lambda _: attempt(run, None))[0]

    def _in_new_processes(self) -> str:
        left_out = sorted(self._left_out)
        pytest_ = (
            sys.executable,
            "-m",
            "pytest",
            "-x",
            *OPTIONS,
            *(f"--deselect={each}" for each in left_out),
        )
        steps: list[tuple[str, list[tuple[str, ...]]]] = [
            ("nearest", [(*pytest_, CORE_TESTS)]),
            ("further", [(*pytest_, TESTS, f"--ignore={CORE_TESTS}")]),
            ("simulation", list(simulations(each for each in self._seeds if str(each) not in left_out))),
        ]
        for step, commands in steps:
            if any(fails(command, self._root) for command in commands):
                return step
        return ""

    def _tell(self, what: dict[str, object]) -> None:
        shutil.rmtree(self._root / ".hypothesis", ignore_errors=True)
        print(json.dumps(what), file=self._out, flush=True)


def _with_next(runs: Sequence[Run]) -> Iterator[tuple[Run, Run | None]]:
    return zip(runs, (*runs[1:], None), strict=False)


def simulations(seeds: Iterable[int]) -> Iterator[tuple[str, ...]]:
    """The commands that run these seeds, at most ten at a time."""
    simulate = (sys.executable, "manage.py", "sharding_simulate", "--json", "--processes", "1")
    found = sorted(seeds)
    while found:
        count = next((n for n, each in enumerate(found[:10]) if each != found[0] + n), len(found[:10]))
        yield (*simulate, "--seed", str(found[0]), "--seeds", str(count))
        del found[:count]


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
