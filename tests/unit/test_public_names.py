"""Public names: each can be asked for, and type checkers see the same ones as programs do."""

import ast
from pathlib import Path

import sharding_app


def _imports(tree: list[ast.stmt]) -> dict[str, str]:
    return {
        alias.asname or alias.name: node.module or ""
        for node in tree
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def test_names_that_are_imported_late_are_those_that_type_checkers_see() -> None:
    tree = ast.parse(Path(sharding_app.__file__).read_text("utf-8")).body
    (seen,) = (_imports(node.body) for node in tree if isinstance(node, ast.If))
    assert seen == {name: f"sharding_app.{module}" for name, module in sharding_app._LATER.items()}
    for name, module in seen.items():
        assert getattr(sharding_app, name).__module__ == module
        assert name in dir(sharding_app)


def test_a_name_that_is_not_there_is_told() -> None:
    assert not hasattr(sharding_app, "ShardRegion")
