"""Runs the Python of a page from top to bottom, in a module of its own, against a cluster of the
page's own entities.

Blocks that declare come first, in their order; then those that ask (`await`, `.sync`, `.tell`), in
theirs. An error names the page and its line. In a page about the cluster in memory, `cluster` is
that cluster, and waiting takes no time.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import sys
import types
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sharding_app.entities.registry import messages, registry
from sharding_app.runtime.base.config import NodeConfig
from sharding_app.testing import modes, real
from sharding_app.testing.cluster import MemoryCluster
from tests.docs.blocks import Block, blocks
from tests.support.hurry import hurry


class Page:
    """One page, and the module in which its code lives."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.module = types.ModuleType(f"docs.{path.stem.replace('-', '_')}")
        python = [block for block in blocks(self.path) if block.language == "python"]
        self.asks = [block for block in python if asks(block)]
        self.declarations = [block for block in python if block not in self.asks]

    @contextmanager
    def declared(self) -> Iterator[list[Any]]:
        """What the page declares is known inside; its entity types."""
        with registry.isolated(), messages.isolated():
            sys.modules[self.module.__name__] = self.module
            try:
                for block in self.declarations:
                    exec(self._compiled(block), vars(self.module))  # noqa: S102  (our own page)
                declared = registry.all().values()
                yield [each for each in declared if each.cls.__module__ == self.module.__name__]
            finally:
                del sys.modules[self.module.__name__]

    def ask(self, block: Block) -> Coroutine[Any, Any, None] | None:
        """Run it; one that awaits is begun only, and is to be awaited."""
        made = eval(self._compiled(block), vars(self.module))  # noqa: S307  (our own page)
        return made if inspect.iscoroutine(made) else None

    def _compiled(self, block: Block) -> types.CodeType:
        # A traceback then shows the page's own line.
        text = "\n" * block.line + block.text
        made: types.CodeType = compile(
            text, str(self.path), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True
        )
        return made


def asks(block: Block) -> bool:
    """Whether it does something at the top, beyond declaring."""
    tree = compile(block.text, "page", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    return any(_asks(statement) for statement in tree.body)


def _asks(statement: ast.stmt) -> bool:
    if isinstance(
        statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Import | ast.ImportFrom
    ):
        return False
    named = {each.attr for each in ast.walk(statement) if isinstance(each, ast.Attribute)}
    awaits = any(isinstance(each, ast.Await | ast.AsyncWith | ast.AsyncFor) for each in ast.walk(statement))
    return awaits or bool({"sync", "tell"} & named)


def run_in_memory(page: Page, *, nodes: int = 2, config: NodeConfig | None = None) -> None:
    """Run it against a cluster in memory."""

    async def main() -> None:
        with page.declared() as entity_types:
            async with MemoryCluster(entity_types, nodes=nodes, config=config) as cluster:
                vars(page.module)["cluster"] = cluster
                with cluster.in_use():
                    for block in page.asks:
                        if (asking := page.ask(block)) is not None:
                            await asking

    hurry(main())


def run_on_servers(page: Page) -> None:
    """Run it against a node on PostgreSQL and Redis; in a test with
    `django_db(transaction=True)`.
    """
    with page.declared(), modes.real(), real.node():
        for block in page.asks:
            if (asking := page.ask(block)) is not None:
                asyncio.run(asking)
