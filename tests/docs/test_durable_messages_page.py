"""docs/durable-messages.md, executed from top to bottom: its sagas come to their ends, and no cent
is lost.
"""

import ast
import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from sharding_app.entities.registry import registry
from sharding_app.testing.clock import TravelLoop
from sharding_app.testing.cluster import MemoryCluster
from tests.docs.blocks import blocks
from tests.support.live import ROOT

PAGE = ROOT / "docs" / "durable-messages.md"


async def until(condition: Callable[[], Awaitable[object]]) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, TravelLoop)
    for _ in range(1000):
        if await condition():
            return
        await loop.travel(0.05)
    raise AssertionError("it did not come to that")


async def sagas(cluster: MemoryCluster, names: dict[str, Any]) -> None:
    account, room, order, parcel = (names[each] for each in ("Account", "Room", "Order", "Parcel"))
    await account.ref("ann").deposit(1000)
    await account.ref("ann").transfer("bob", 300)
    await until(lambda: is_now(account.ref("bob").cents(), 300))
    await account.ref("bob").close()
    await account.ref("ann").transfer("bob", 100)
    await until(lambda: is_now(account.ref("ann").cents(), 700))
    await order.ref("1").place("blue", "ann", 200)
    await until(lambda: is_now(order.ref("1").how_far(), "shipped"))
    assert await parcel.ref("1").times_shipped() == 1
    assert await room.ref("blue").taken_by() == "1"
    await order.ref("2").place("blue", "ann", 200)
    await order.ref("3").place("red", "bob", 900)
    for number in "23":
        await until(lambda each=number: is_now(order.ref(each).how_far(), "not possible"))  # type: ignore[misc]
    assert await room.ref("red").taken_by() == ""
    assert await account.ref("ann").cents() + await account.ref("bob").cents() == 800
    await until(lambda: is_now(names["Digest"].the().times_sent(), 0))


async def is_now(asked: Awaitable[object], wanted: object) -> bool:
    return await asked == wanted


def test_the_page_runs() -> None:
    code = [block.text for block in blocks(PAGE) if block.language == "python"]
    names: dict[str, Any] = {"__name__": "docs.durable"}
    (outside,) = (text for text in code if text.startswith("await "))

    async def main() -> None:
        for text in code:
            if text is not outside:
                exec(compile(text, str(PAGE), "exec"), names)  # noqa: S102  (our own page)
        types = [each for name, each in registry.all().items() if "docs." in name]
        assert len(types) == 5
        async with MemoryCluster(types, nodes=2) as cluster:
            with cluster.in_use():
                await sagas(cluster, names)
                made = eval(compile(outside, str(PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)  # noqa: S307
                if inspect.isawaitable(made):
                    await made
                await until(lambda: is_now(names["Account"].ref("ann").cents(), 1000))

    with registry.isolated(), asyncio.Runner(loop_factory=TravelLoop) as runner:
        runner.run(main())
