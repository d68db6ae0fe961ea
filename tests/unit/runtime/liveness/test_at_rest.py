"""A cluster at rest: each node asks the server the same few things, however many nodes there are
(promise 14).
"""

import asyncio
from collections import Counter

from sharding_app.adapters.memory.faults import Plan
from sharding_app.testing.clock import TravelLoop
from sharding_app.testing.cluster import MemoryCluster
from tests.support.steady_loop import SteadyLoop

SECONDS = 20.0


class Counting:
    """Counts the statements of each client by kind, and lets all of them through."""

    def __init__(self) -> None:
        self.statements: Counter[tuple[str, str]] = Counter()

    def plan(self, client: str, kind: str) -> Plan | None:
        self.statements[client, kind] += 1
        return None


def statements_a_second(nodes: int) -> dict[str, Counter[str]]:
    """Return what each node asks in a second, by kind; the coordinator's under 'coordinator'."""

    async def main() -> dict[str, Counter[str]]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, TravelLoop)
        async with MemoryCluster([], nodes=nodes) as cluster:
            await loop.travel(30)
            counting = cluster.server.faults = Counting()
            await loop.travel(SECONDS)
            cluster.server.faults = None
            found: dict[str, Counter[str]] = {}
            for node in cluster.nodes.values():
                name = "coordinator" if node.coordinator is not None else node.incarnation
                found[name] = Counter(
                    {
                        kind: round(number / SECONDS)
                        for (client, kind), number in counting.statements.items()
                        if client == node.incarnation
                    }
                )
            return found

    with asyncio.Runner(loop_factory=SteadyLoop) as runner:
        return runner.run(main())


def test_the_statements_of_a_node_at_rest_are_few_and_do_not_grow_with_the_cluster() -> None:
    small, large = statements_a_second(2), statements_a_second(25)
    at_rest = Counter({"ping": 4, "news": 1})
    for found in (small, large):
        assert len(found) > 1
        for name, statements in found.items():
            coordinating = Counter({"members": 4}) if name == "coordinator" else Counter()
            assert +statements == at_rest + coordinating, name
