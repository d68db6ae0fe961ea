"""Changes the pure core at random, one small change at a time, and looks whether any check notices.

    python -m tests.house.mutants [--count 60] [--seed 1] [--skip 0] [--only region] [--seeds 40]
                                  [--json]

A *mutant* is a copy of this checkout in which one expression or statement of sharding_app/protocol
says something else: a comparison the other way round, a call left out, a number and one. The same
seed chooses the same mutants, in the same order, so that a run can go on where another one ended
(`--skip`). Steps are tried in order, each with all mutants that those before it have not noticed:

    nearest      the tests in tests/unit/protocol that execute the changed statement
    further      the other tests of tests/unit that do
    simulation   those of the seeds (their number: `--seeds`; 0: none) that do

A mutant that no step notices has survived: either a test is missing, or the change changes nothing
that can be seen. The exit code is 1 if the share of those is above `--most` per cent. Tests that
fail in the unchanged copy are named and left out, a few at most. `tests.house.forks` says how the
steps are run.
"""

import argparse
import ast
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from tests.house.trials import Copy

CORE = Path("sharding_app/protocol")
CORE_TESTS = "tests/unit/protocol/"
TESTS = "tests/unit"

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


class Mutant(NamedTuple):
    """One change: these bytes of a file, and what stands there instead."""

    file: str
    line: int
    last: int
    "The last line of the part that is changed."
    start: int
    end: int
    new: str

    def applied(self, text: str) -> str:
        data = text.encode()
        return (data[: self.start] + self.new.encode() + data[self.end :]).decode()

    def told(self, text: str) -> dict[str, object]:
        old = text.encode()[self.start : self.end].decode()
        return {"place": f"{self.file}:{self.line}", "old": _short(old), "new": _short(self.new)}


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 160 else f"{text[:157]}..."


# -- Which changes there are -----------------------------------------------------------------------


def mutants(file: str, text: str) -> list[Mutant]:
    """All mutants of one file, in the order of its text."""
    data = text.encode()
    starts = [0]
    for each in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(each))

    def ends(node: ast.expr | ast.stmt) -> tuple[int, int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        end = starts[node.end_lineno - 1] + node.end_col_offset
        return node.end_lineno, starts[node.lineno - 1] + node.col_offset, end

    def words(node: ast.expr | ast.stmt) -> str:
        _, start, end = ends(node)
        return data[start:end].decode()

    return sorted(
        {
            Mutant(file, node.lineno, *ends(node), new)
            for function in ast.walk(ast.parse(text))
            if isinstance(function, ast.FunctionDef) and function.name != "__repr__"
            for statement in function.body
            for inside in _walk(statement)
            for node, new in _changes(inside, words)
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
    node: ast.AST, words: Callable[[ast.expr | ast.stmt], str]
) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """What may stand in the place of a node, or of a part of it; `words` are those of a node."""
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


# -- What becomes of them --------------------------------------------------------------------------


def fates(folder: Path, picked: Sequence[Mutant], seeds: int) -> Iterator[dict[str, Any]]:
    """Try these mutants in a copy; yield what `tests.house.forks` says, one line at a time."""
    request = json.dumps({"mutants": picked, "seeds": seeds})
    said = folder / "said.txt"
    with said.open("w+", encoding="utf-8") as log:
        with subprocess.Popen(
            (sys.executable, "-m", "tests.house.forks"), cwd=folder, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
        ) as running:  # fmt: skip
            assert running.stdin is not None
            assert running.stdout is not None
            running.stdin.write(request)
            running.stdin.close()
            yield from map(json.loads, running.stdout)
        if running.returncode:
            yield {"failed": said.read_text(encoding="utf-8")[-4000:]}


# -- The command -----------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--count", type=int, default=60, help="number of mutants (default: 60)")
    parser.add_argument("--seed", type=int, default=1, help="which ones (default: 1)")
    parser.add_argument("--skip", type=int, default=0, help="number of the first to leave out (default: 0)")
    parser.add_argument("--only", default="", metavar="PART", help="only of files with this in their name")
    parser.add_argument(
        "--seeds", type=int, default=40, help="seeds of the simulation (default: 40; 0: tests alone)"
    )
    parser.add_argument("--most", type=float, default=5.0, help="per cent that may survive (default: 5)")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    options = parser.parse_args(arguments)
    survived: list[dict[str, object]] = []
    noticed: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        Copy(folder)
        picked = chosen(folder, options.seed, options.count, skip=options.skip, only=options.only)
        if not picked:
            parser.error("there is no such mutant")
        texts = {each.file: (folder / each.file).read_text(encoding="utf-8") for each in picked}
        for fate in fates(folder, picked, options.seeds):
            if "failed" in fate:
                print(f"without any change these fail: {fate['failed']}", file=sys.stderr)
                return 2
            if "number" in fate:
                fate["number"] += options.skip
            if "step" not in fate:
                print(json.dumps(fate) if options.json else fate, flush=True)
                continue
            mutant = picked[fate["number"] - options.skip]
            told = mutant.told(texts[mutant.file])
            if fate["step"]:
                noticed[fate["step"]] += 1
            else:
                survived.append(told)
            if options.json:
                print(json.dumps({**fate, **told}), flush=True)
            else:
                print(
                    f"{fate['number'] + 1:4} {fate['step'] or 'SURVIVED':10} {told['place']}: "
                    f"{told['old']}  ->  {told['new']}  [{fate['by']} {fate['how']} {fate['took']} s]",
                    flush=True,
                )
    share = 100 * len(survived) / max(1, len(picked))
    if options.json:
        print(
            json.dumps(
                {"seed": options.seed, "mutants": len(picked), "noticed": noticed, "survived": len(survived)}
            )
        )
    else:
        print(f"{len(picked)} mutants: noticed by {dict(noticed)}; {len(survived)} survived ({share:.1f} %)")
    return 1 if share > options.most else 0


if __name__ == "__main__":
    sys.exit(main())
