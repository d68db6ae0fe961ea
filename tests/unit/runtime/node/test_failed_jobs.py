"""A vital job that fails (no memory, a bug) ends the incarnation, and the process begins another
one.
"""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import pytest

from sharding_app.entities.registry import registry
from sharding_app.protocol.messages import Deliver
from sharding_app.runtime.node.node import Node
from sharding_app.runtime.node.runner import NodeRunner
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.counter_cluster import CONFIG, NAMES, until

pytestmark = pytest.mark.asyncio


async def fails() -> None:
    raise MemoryError


async def has_a_bug() -> None:
    raise LookupError("not thought of")


async def fails_in_a_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(fails())


@asynccontextmanager
async def running(cluster: MemoryCluster) -> AsyncIterator[NodeRunner]:
    numbers = count(1)
    types = [registry.get(name) for name in NAMES]
    config = dataclasses.replace(CONFIG, name="phoenix")
    runner = NodeRunner(config, types, cluster._node_ports, lambda: f"phoenix-{next(numbers)}")
    life = asyncio.ensure_future(runner.run())
    try:
        await runner.up.wait()
        yield runner
    finally:
        runner.request_stop(1.0)
        await life


@pytest.mark.parametrize(
    ("break_it", "told"),
    [
        (lambda node: node.run(has_a_bug(), "what fails"), "a bug: sharding what fails ended: LookupError"),
        (
            lambda node: node.run(fails(), "what fails"),
            "no memory is left: sharding what fails ended: MemoryError",
        ),
        (
            lambda node: node.run(fails_in_a_group(), "what fails"),
            "no memory is left: sharding what fails ended: Exc",
        ),
        (
            lambda node: setattr(node.node_ports.threads, "lost", lambda: "a-thread"),
            "no memory is left: sharding threads and figures ended: MemoryError('the thread a-thread has ended",
        ),
        (lambda node: node.hosts[NAMES[0]].spawn(fails()), "no memory is left: MemoryError"),
        (lambda node: node.hosts[NAMES[0]].spawn(fails_in_a_group()), "no memory is left: Exc"),
    ],
    ids=[
        "a bug",
        "of the node",
        "of a group of the node",
        "of a thread",
        "of a host",
        "of a group of a host",
    ],
)
async def test_another_incarnation_begins(
    cluster: MemoryCluster,
    break_it: Callable[[Node], object],
    told: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running(cluster) as runner:
        former = runner.node
        assert former is not None
        break_it(former)
        await until(lambda: runner.incarnations == 2 and runner.up.is_set())
        assert former.ended.result() == "failed"
        assert not former.hosts[NAMES[0]].shards
        assert runner.node is not None
        assert runner.node.state == "up"
        assert told in caplog.text
        assert ("a bug" in caplog.text) == told.startswith("a bug")


async def test_a_bug_in_what_one_command_does_stays_there(
    cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Retried, that command would take one node after the other with it."""
    async with running(cluster) as runner:
        node = runner.node
        assert node is not None
        node.hosts[NAMES[0]].spawn(has_a_bug())
        await until(lambda: "not thought of" in caplog.text)
        assert not node.ended.done()


async def test_a_job_that_nothing_depends_on_may_fail(
    cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(cluster) as runner:
        node = runner.node
        assert node is not None
        await asyncio.wait([node.run(has_a_bug(), "a wish", vital=False)])
        assert not node.ended.done()
        assert "a bug: sharding a wish ended" in caplog.text


@pytest.mark.parametrize(("job", "ends"), [(fails, True), (fails_in_a_group, True), (has_a_bug, False)])
async def test_no_job_goes_on_half_done_where_no_memory_is_left(
    job: Callable[[], Coroutine[Any, Any, None]], ends: bool
) -> None:
    """Nothing else goes on with its messages. A bug in a job that is not vital ends that job."""
    async with MemoryCluster([registry.get(name) for name in NAMES], nodes=1) as cluster:
        (node,) = cluster.nodes.values()
        await asyncio.wait([node.run(job(), "deliveries", vital=False)])
        await asyncio.sleep(0)
        assert node.failed.is_set() is ends


@pytest.mark.parametrize(("error", "ends"), [(MemoryError, True), (LookupError, False)])
async def test_a_frame_for_which_no_memory_is_left_ends_the_incarnation(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception], ends: bool
) -> None:
    """An entity that was to be loaded for it would stay so for ever."""
    async with MemoryCluster([registry.get(name) for name in NAMES], nodes=1) as cluster:
        (node,) = cluster.nodes.values()

        def envelopes(*_: object) -> None:
            raise error

        monkeypatch.setattr(node, "envelopes", envelopes)
        with pytest.raises(error):
            node._deliver("n-x", [Deliver("T", 0, 1, "e", 1, "c", b"")])
        assert node.failed.is_set() is ends
