"""docs/messages.md, executed from top to bottom against a cluster in memory."""

import ast
import asyncio
import inspect
from typing import Any

from sharding_app.entities.registry import registry
from sharding_app.testing.cluster import MemoryCluster
from tests.docs.blocks import blocks
from tests.support.live import ROOT

PAGE = ROOT / "docs" / "messages.md"


def test_the_page_runs() -> None:
    code = [block.text for block in blocks(PAGE) if block.language == "python"]
    assert len(code) >= 7
    names: dict[str, Any] = {"__name__": "docs.messages"}
    declarations = [text for text in code if "await " not in text]
    asks = [text for text in code if "await " in text]
    assert len(asks) == 7

    async def main() -> None:
        for text in declarations:
            exec(compile(text, str(PAGE), "exec"), names)  # noqa: S102  (our own page)
        types = [each for name, each in registry.all().items() if "docs." in name]
        async with MemoryCluster(types, nodes=2) as cluster:
            with cluster.in_use():
                for text in asks:
                    made = eval(compile(text, str(PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)  # noqa: S307
                    if inspect.isawaitable(made):
                        await made
                assert await names["mailer"].ask(names["Increment"]()) == 1

    with registry.isolated():
        asyncio.run(main())
