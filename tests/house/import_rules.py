"""What each room may import, read from the source itself: imports inside functions and under
TYPE_CHECKING too.

import-linter (pyproject.toml) forbids by name; these rules allow by name, so a module that the
rules do not name is out.
"""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

# Pure: the same input gives the same output in every process, at any time, on any machine.
PURE = frozenset(
    "__future__ abc array base64 binascii bisect collections copy dataclasses enum fractions functools hashlib heapq hmac"
    " itertools keyword math operator re string struct textwrap types typing typing_extensions unicodedata zlib"
    " msgspec datetime zoneinfo".split()
)
# What these modules know of the present is not pure.
CLOCKS = frozenset({"now", "utcnow", "today"})
# No name of these builtins may be called in the core: they do I/O, or differ from process to
# process.
IMPURE_CALLS = frozenset({"open", "print", "input", "hash", "id", "exec", "eval", "breakpoint"})


@dataclass(frozen=True, slots=True)
class Room:
    """One package: what of the app it may import, and which outside modules (None: any)."""

    name: str
    inside: tuple[str, ...]
    outside: frozenset[str] | None = None


ROOMS = (
    Room("sharding_app.protocol", ("sharding_app.protocol",), PURE),
    Room("sharding_app.ports", ("sharding_app.ports", "sharding_app.protocol")),
    Room(
        "sharding_app.runtime",
        tuple(
            f"sharding_app.{room}"
            for room in ("runtime", "protocol", "ports", "entities", "errors", "redaction")
        ),
    ),
    Room(
        "sharding_app.entities",
        tuple(f"sharding_app.{room}" for room in ("entities", "protocol", "errors", "redaction")),
    ),
    Room("sharding_app.redaction", (), PURE | {"msgspec", "contextlib"}),
    Room("sharding_app.embedded", ("sharding_app.embedded",)),
    *(
        Room(
            f"sharding_app.adapters.{adapter}",
            (
                f"sharding_app.adapters.{adapter}",
                *(f"sharding_app.adapters.{each}" for each in shared),
                "sharding_app.protocol",
                "sharding_app.ports",
            ),
        )
        for adapter, shared in (
            ("postgres", ("lookups",)),
            ("memory", ("lookups",)),
            ("channels", ()),
            ("direct", ()),
            ("personal", ()),
            ("lookups", ()),
        )
    ),
)


def module_of(file: Path, root: Path) -> str:
    """Return the dotted name of a source file."""
    parts = file.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield every imported name, as deep as it is written."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def within(name: str, package: str) -> bool:
    """Tell whether a dotted name is a package or lies in it."""
    return name == package or name.startswith(f"{package}.")


def _breaks(room: Room, name: str) -> bool:
    if within(name, "sharding_app"):
        return not any(within(name, allowed) for allowed in room.inside)
    if any(within(name, outside) for outside in ("project", "tests")):
        return True
    return room.outside is not None and name.partition(".")[0] not in room.outside


def _impure_calls(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS:
            yield node.lineno, f"{node.func.id}()"
        if isinstance(node, ast.Attribute) and node.attr in CLOCKS and _names_a_date(node.value):
            yield node.lineno, f"{ast.unparse(node)}()"


def _names_a_date(value: ast.expr) -> bool:
    return ast.unparse(value) in ("datetime", "date", "datetime.datetime", "datetime.date")


def broken_rules(root: Path) -> list[str]:
    """Return a line for each import in the tree at `root` that its room may not have."""
    found = []
    for file in sorted((root / "sharding_app").rglob("*.py")):
        module = module_of(file, root)
        room = next(
            (room for room in ROOMS if within(module, room.name)), Room("sharding_app", ("sharding_app",))
        )
        tree = ast.parse(file.read_text(), str(file))
        bad = [(line, name) for line, name in imports(tree) if _breaks(room, name)]
        if room.outside is not None:
            bad += _impure_calls(tree)
        found += [
            f"{file.relative_to(root)}:{line}: {room.name} may not use {name}" for line, name in sorted(bad)
        ]
    return found


def circles(root: Path) -> list[tuple[str, ...]]:
    """Return the groups of modules that import each other, directly or by way of others."""
    files = {module_of(file, root): file for file in (root / "sharding_app").rglob("*.py")}
    arrows = {module: _modules(file, files) - {module} for module, file in files.items()}
    reached = {module: _reached(module, arrows) for module in files}
    found = {
        tuple(sorted(other for other in reached[module] if module in reached[other]))
        for module in files
        if module in reached[module]
    }
    return sorted(found)


def _modules(file: Path, known: Container[str]) -> set[str]:
    """Return the modules whose names a file imports, also for annotations alone."""
    found = set()
    for _, name in imports(ast.parse(file.read_text(), str(file))):
        while name and name not in known:
            name = name.rpartition(".")[0]
        found.add(name)
    return found - {""}


def _reached(module: str, arrows: Mapping[str, set[str]]) -> set[str]:
    """Return all modules that one imports; itself only if it is in a circle."""
    found: set[str] = set()
    ahead = [module]
    while ahead:
        new = arrows[ahead.pop()] - found
        found |= new
        ahead += new
    return found
