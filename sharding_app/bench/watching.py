"""The memory of nodes and client during a measurement."""

import asyncio
import os
from types import TracebackType
from typing import Self

from sharding_app.bench.cluster import BenchCluster
from sharding_app.bench.machine import resident_bytes
from sharding_app.bench.result import Result

LOOK_SECONDS = 0.25
MEGABYTE = 1e6


class Watched:
    """Reads the nodes' memory from the outside, a few times a second, during the block."""

    def __init__(self, cluster: BenchCluster) -> None:
        self._cluster = cluster
        self._task: asyncio.Task[None]
        self.now = 0
        self.most = 0
        self.client = 0

    async def __aenter__(self) -> Self:
        self._task = asyncio.ensure_future(self._watch())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        self.look()

    def note(self, result: Result) -> None:
        result.node_mb, result.node_mb_most = self.now / MEGABYTE, self.most / MEGABYTE
        result.client_mb = self.client / MEGABYTE

    async def _watch(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(LOOK_SECONDS)

    def look(self) -> None:
        self.now = max(resident_bytes(node.pid) for node in self._cluster.nodes.values())
        self.most = max(self.most, self.now)
        self.client = resident_bytes(os.getpid())
