"""Changes the pure core at random, one small change at a time, and looks whether any check notices.

    python -m tests.house.mutants [--count 60] [--seed 1] [--skip 0] [--only region] [--seeds 40]
                                  [--json]

A *mutant* is a copy of this checkout in which one expression or statement of sharding_app/protocol
says something else: a comparison the other way round, a call left out, a number and one. The same
seed chooses the same mutants, in the same order, so that a run can go on where another one ended
(`--skip`). Steps are tried in order, and the first that fails has noticed:

    nearest      the tests in tests/unit/protocol that import the changed file, or a file of the
                 core that imports it
    core         the other tests of that folder
    further      the other tests of tests/unit that import the changed file itself
    simulation   so many seeds (`--seeds`; 0: none)

A mutant that no step notices has survived: either a test is missing, or the change changes nothing
that can be seen. The exit code is 1 if the share of those is above `--most` per cent. All steps
have to pass in the unchanged copy first.
"""

import argparse
import ast
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.house.trials import Copy

CORE = Path("sharding_app/protocol")
FOLDERS = ("tests/unit/protocol",)
FURTHER = ("tests/unit",)
NO_TESTS = 5
"""pytest's code when there was none: nothing has noticed."""
CPU_SECONDS = 300
"""A mutant may turn for ever, and so may each process that it starts."""
MEMORY_BYTES = 4 * 1024**3
WALL_SECONDS = 1800.0
"""Only for one that waits for ever; long, since the machine may be busy."""

OTHERWISE: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
ANOTHER = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list", "popleft": "pop"}
"""Functions and methods that can be called alike."""
_IMPORT = re.compile(r"^\s*(?:from|import) ([\w.]+)", re.MULTILINE)


class Mutant(NamedTuple):
    """One change: these bytes of a file, and what stands there instead."""

    file: str
    line: int
    start: int
    end: int
    new: str

    def applied(self, text: str) -> str:
        data = text.encode()
        return (data[: self.start] + self.new.encode() + data[self.end :]).decode()

    def told(self, text: str) -> dict[str, object]:
        old = text.encode()[self.start : self.end].decode()
        return {"place": f"{self.file}:{self.line}", "old": _short(old), "new": _short(self.new)}


class Step(NamedTuple):
    name: str
    command: tuple[str, ...]


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 160 else f"{text[:157]}..."


# -- Which changes there are -----------------------------------------------------------------------


def mutants(file: str, text: str) -> list[Mutant]:
    """All mutants of one file, in the order of its text."""
    starts = [0]
    for each in text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(each))

    def place(node: ast.expr | ast.stmt, new: str) -> Mutant:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = starts[node.lineno - 1] + node.col_offset
        return Mutant(file, node.lineno, start, starts[node.end_lineno - 1] + node.end_col_offset, new)

    return sorted(
        {
            place(node, new)
            for function in ast.walk(ast.parse(text))
            if isinstance(function, ast.FunctionDef) and function.name != "__repr__"
            for statement in function.body
            for inside in _walk(statement)
            for node, new in _changes(inside, text)
        }
    )


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those of texts: what a text says is no behaviour of the core."""
    if isinstance(node, ast.JoinedStr):
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _walk(child)


def _changes(  # noqa: C901  (one case for each kind of change)
    node: ast.AST, text: str
) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """What may stand in the place of a node, or of a part of it."""

    def words(part: ast.AST) -> str:
        return ast.get_source_segment(text, part) or ""

    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            yield node, f"({words(left)} {OTHERWISE[type(op)]} {words(right)})"
        case ast.BoolOp(op=op, values=values):
            parts = [f"({words(each)})" for each in values]
            yield node, f"({(' or ' if isinstance(op, ast.And) else ' and ').join(parts)})"
            yield from (
                (node, f"({(' and ' if isinstance(op, ast.And) else ' or ').join(left)})")
                for left in _all_but_one(parts)
            )
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield node, f"bool({words(operand)})"
        case ast.Constant(value=int() as value) if not isinstance(value, bool) and value > 1:
            yield node, str(value + 1)
        case ast.Constant(value=bool() as value):
            yield node, str(not value)
        case ast.If(test=test) | ast.IfExp(test=test):
            yield test, "True"
            yield test, "False"
        case ast.Call(func=ast.Name(id=name)) if name in ANOTHER:
            yield node.func, ANOTHER[name]
        case ast.Call(func=ast.Attribute(value=value, attr=name)) if name in ANOTHER:
            yield node.func, f"{words(value)}.{ANOTHER[name]}"
        case ast.Expr(value=ast.Call()) | ast.Delete() | ast.Raise():
            yield node, "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield node, "pass"
        case ast.AugAssign(op=ast.Add()):
            yield node, words(node).replace("+=", "-=", 1)
        case ast.AugAssign(op=ast.Sub()):
            yield node, words(node).replace("-=", "+=", 1)
        case ast.Return(value=ast.expr() as value) if not (
            isinstance(value, ast.Constant) and value.value is None
        ):
            yield node, "return None"


def _all_but_one(parts: list[str]) -> Iterator[list[str]]:
    for number in range(len(parts)):
        yield parts[:number] + parts[number + 1 :]


def chosen(root: Path, seed: int, count: int, *, skip: int = 0, only: str = "") -> list[Mutant]:
    """Return `count` mutants of the core, or of the files with `only` in their name, by chance."""
    files = {path.relative_to(root).as_posix(): path for path in sorted((root / CORE).rglob("*.py"))}
    pool = [
        mutant
        for name, path in files.items()
        if only in name
        for mutant in mutants(name, path.read_text(encoding="utf-8"))
    ]
    Random(seed).shuffle(pool)
    return pool[skip : skip + count]


# -- Which checks there are ------------------------------------------------------------------------


def nearest(root: Path, file: str) -> list[str]:
    """The tests that import this file of the core, or one of the core that imports it."""
    name = _module(file)
    users = {
        _module(each) for each, imported in _imports_of(root, (CORE.as_posix(),)).items() if name in imported
    }
    return _that_import(root, FOLDERS, {name} | users)


def further(root: Path, file: str) -> list[str]:
    tests = _that_import(root, FURTHER, {_module(file)})
    return [each for each in tests if not each.startswith(tuple(f"{folder}/" for folder in FOLDERS))]


def _module(file: str) -> str:
    return file.removesuffix(".py").replace("/", ".")


def _that_import(root: Path, folders: Sequence[str], names: set[str]) -> list[str]:
    """The tests that import one of these, themselves or through a helper, in the order of the
    folders.
    """
    imports = _imports_of(root, folders)
    while True:
        found = [each for each, imported in imports.items() if imported & names]
        helpers = {_module(each) for each in found if "/test_" not in each}
        if helpers <= names:
            return [each for each in found if "/test_" in each]
        names = names | helpers


def _imports_of(root: Path, folders: Sequence[str]) -> dict[str, set[str]]:
    """For each file of these folders the modules that it imports."""
    for folder in folders:
        if not (root / folder).is_dir():
            raise NotADirectoryError(
                f"{folder}: there is no such folder. Where are its files now? "
                "The mutants of tests/house/mutants.py are tried with them."
            )
    return {
        path.relative_to(root).as_posix(): set(_IMPORT.findall(path.read_text(encoding="utf-8")))
        for folder in folders
        for path in sorted((root / folder).rglob("*.py"))
    }


def steps(root: Path, file: str | None, seeds: int) -> list[Step]:
    """What is tried with a mutant of this file, in order; without one, what must pass before."""
    pytest = (sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider")
    made = []
    near = nearest(root, file) if file is not None else []
    if near:
        made.append(Step("nearest", (*pytest, *near)))
    made.append(Step("core", (*pytest, *FOLDERS, *(f"--ignore={each}" for each in near))))
    if file is not None and (beyond := further(root, file)):
        made.append(Step("further", (*pytest, *beyond)))
    if seeds:
        simulate = (sys.executable, "manage.py", "sharding_simulate", "--json", "--processes", "1")
        # In tens: most that are found at all are found by the first few.
        for first in range(0, seeds, 10):
            part = ("--seed", str(first), "--seeds", str(min(10, seeds - first)))
            made.append(Step("simulation", (*simulate, *part)))
    return made


def notices(folder: Path, step: Step) -> bool:
    """Run one step in a copy; tell whether it has failed."""
    # A file that is changed twice within a second would be taken for what was compiled before.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    running = subprocess.Popen(
        step.command, cwd=folder, env=environment, start_new_session=True, preexec_fn=_bounded,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        code = running.wait(WALL_SECONDS)
    except subprocess.TimeoutExpired:
        code = -signal.SIGKILL
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
    return code not in (0, NO_TESTS)


def _bounded() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


# -- The command -----------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--count", type=int, default=60, help="so many mutants (default: 60)")
    parser.add_argument("--seed", type=int, default=1, help="which ones (default: 1)")
    parser.add_argument("--skip", type=int, default=0, help="leave out so many of the first (default: 0)")
    parser.add_argument("--only", default="", metavar="PART", help="only of files with this in their name")
    parser.add_argument(
        "--seeds", type=int, default=40, help="seeds of the simulation (default: 40; 0: tests alone)"
    )
    parser.add_argument("--most", type=float, default=5.0, help="per cent that may survive (default: 5)")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    options = parser.parse_args(arguments)
    survived: list[dict[str, object]] = []
    noticed: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        copy = Copy(folder)
        picked = chosen(folder, options.seed, options.count, skip=options.skip, only=options.only)
        for step in steps(folder, None, options.seeds):
            if notices(folder, step):
                print(f"without any change this fails: {' '.join(step.command)}", file=sys.stderr)
                return 2
        for number, mutant in enumerate(picked, 1):
            text = (folder / mutant.file).read_text(encoding="utf-8")
            with copy.changed(mutant.file, mutant.applied(text)):
                tried = steps(folder, mutant.file, options.seeds)
                by = next((each.name for each in tried if notices(folder, each)), "")
            told = mutant.told(text)
            if by:
                noticed[by] += 1
            else:
                survived.append(told)
            if not options.json:
                print(
                    f"{number:4} {by or 'SURVIVED':10} {told['place']}: {told['old']}  ->  {told['new']}",
                    flush=True,
                )
    share = 100 * len(survived) / max(1, len(picked))
    if options.json:
        print(
            json.dumps(
                {"seed": options.seed, "mutants": len(picked), "noticed": noticed, "survived": survived}
            )
        )
    else:
        print(f"{len(picked)} mutants: noticed by {dict(noticed)}; {len(survived)} survived ({share:.1f} %)")
    return 1 if share > options.most else 0


if __name__ == "__main__":
    sys.exit(main())
