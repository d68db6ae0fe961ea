"""docs/following.md, executed from top to bottom."""

import asyncio
from typing import Any

from sharding_app.entities.registry import registry
from sharding_app.testing.clock import TravelLoop
from sharding_app.testing.cluster import MemoryCluster
from tests.docs.blocks import blocks
from tests.support.live import ROOT

PAGE = ROOT / "docs" / "following.md"


async def follow(names: dict[str, Any], capsys: Any) -> None:
    auction = names["Auction"]
    seen: list[int] = []
    watching = asyncio.ensure_future(names["watch"]("vase", seen))
    reporting = asyncio.ensure_future(names["report"]("vase"))
    for amount in (50, 60, 100):
        await auction.ref("vase").bid("bob", amount)
    await asyncio.gather(watching, reporting)
    assert seen[-1] == 100
    assert seen == sorted(set(seen))
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in shown] == ["1", "2", "3"]
    assert "amount=100" in shown[-1]
    await names["test_a_bid_is_shown"]()


def test_the_page_runs(capsys: Any) -> None:
    names: dict[str, Any] = {"__name__": "docs.following"}

    async def main() -> None:
        for block in blocks(PAGE):
            assert block.language == "python"
            exec(compile(block.text, str(PAGE), "exec"), names)  # noqa: S102  (our own page)
        types = [each for name, each in registry.all().items() if name == "docs.Auction"]
        async with MemoryCluster(types, nodes=2) as cluster:
            with cluster.in_use():
                await follow(names, capsys)
                await names["Auction"].ref("jug").bid("ann", 5)
                assert await asyncio.to_thread(names["next_bids"], "jug") == [5]

    with registry.isolated(), asyncio.Runner(loop_factory=TravelLoop) as runner:
        runner.run(main())
