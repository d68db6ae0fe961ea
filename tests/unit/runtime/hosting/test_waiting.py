"""What waits at a host: for the shard's row, where it counts against its sender's credit, and for
the lease, where it goes on once.
"""

import asyncio

import pytest

from sharding_app.protocol.builtin_commands import START
from sharding_app.protocol.call import Call
from sharding_app.protocol.messages import Deliver
from sharding_app.protocol.numbering import Numbering
from sharding_app.protocol.records import ShardRow
from sharding_app.protocol.shard import Shard
from sharding_app.runtime.hosting.parked import OVERHEAD_BYTES, Suspended
from sharding_app.runtime.hosting.type_host import TypeHost
from sharding_app.runtime.journal.commits import Resident
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.counter_cluster import until

pytestmark = pytest.mark.asyncio

EPOCH = 99


class Row:
    """The row of a shard, which the store does not tell before it is set."""

    def __init__(self, host: TypeHost) -> None:
        self.told: asyncio.Future[ShardRow | None] = asyncio.get_running_loop().create_future()
        host.row_of = self.of  # type: ignore[method-assign]

    async def of(self, number: int) -> ShardRow | None:
        return await self.told


def envelope(host: TypeHost, request: int) -> Deliver:
    return Deliver(host.type.name, 7, EPOCH, "a", request, "no_such_command", b"x" * 1000)


@pytest.mark.parametrize("at_home", [True, False])
async def test_early_envelopes_count_against_their_senders_credit(
    cluster: MemoryCluster, *, at_home: bool
) -> None:
    node = cluster.nodes["node1"]
    host = node.hosts["protocol.Counter"]
    row = Row(host)
    host.receive("p-client", [envelope(host, number) for number in range(1, 4)])
    host.receive("p-other", [envelope(host, 4)])
    assert node.hosting.waiting_bytes("p-client") == 3 * (1000 + OVERHEAD_BYTES)
    assert node.hosting.waiting_bytes("p-other") == 1000 + OVERHEAD_BYTES
    home = node.incarnation if at_home else "n-elsewhere"
    row.told.set_result(ShardRow(host.type.name, 7, EPOCH, home, "home"))
    await until(lambda: not host.early.waiting)
    await until(lambda: host.counters["handed_back"] == (0 if at_home else 4))
    await until(lambda: node.hosting.waiting_bytes("p-client") == 0)
    assert node.hosting.waiting_bytes("p-other") == 0


async def test_early_envelopes_that_no_caller_waits_for_free_their_senders_credit(
    cluster: MemoryCluster,
) -> None:
    """The row, or a lease, may be long in coming: their sender has calls for other types too."""
    node = cluster.nodes["node1"]
    host = node.hosts["protocol.Counter"]
    row = Row(host)
    late, patient, told = (envelope(host, number) for number in (1, 2, 3))
    late.deadline_ms = int((node.ports.clock.now() + 1.0) * 1000)
    patient.deadline_ms = late.deadline_ms + 600_000
    host.receive("p-client", [late, patient, told])
    await until(lambda: node.hosting.waiting_bytes("p-client") == 2 * (1000 + OVERHEAD_BYTES))
    assert host.execution.counters["expired"] == 1
    row.told.set_result(ShardRow(host.type.name, 7, EPOCH, "n-elsewhere", "home"))
    await until(lambda: host.counters["handed_back"] == 2)
    assert node.hosting.waiting_bytes("p-client") == 0


async def test_a_row_that_was_read_before_the_lease_came_back_starts_no_shard(cluster: MemoryCluster) -> None:
    """What the shard is rebuilt from is made sure of meanwhile, which may take as long as a standby
    is away.
    """
    node = cluster.nodes["node1"]
    host = node.hosts["protocol.Counter"]
    homes = [node.incarnation, "n-elsewhere"]

    async def row_of(number: int) -> ShardRow | None:
        return ShardRow(host.type.name, number, EPOCH, homes.pop(0), "home")

    async def take(number: int, epoch: int, numbers: Numbering | None = None) -> bool:
        node.hosting.resume()
        return False

    host.row_of = row_of  # type: ignore[method-assign]
    host.take = take  # type: ignore[method-assign]
    host.receive("p-client", [envelope(host, 1)])
    await until(lambda: not host.early.waiting)
    assert homes == []
    assert 7 not in host.shards
    assert host.counters["handed_back"] == 1


async def test_envelopes_that_waited_for_a_lease_which_is_lost_again_wait_on_in_their_order(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lifeline runs on a thread of its own: the lease that it has resumed may have lapsed by
    the time at which the host goes on.
    """
    node = cluster.nodes["node1"]
    host = node.hosts["protocol.Counter"]
    handled: list[tuple[str, int]] = []

    def receive(source: str, envelopes: list[Deliver]) -> None:
        handled.extend((source, each.request) for each in envelopes)
        lapse()

    def lapse(*, valid: bool = False) -> None:
        monkeypatch.setattr(node, "may_handle", lambda: valid)

    monkeypatch.setitem(node.hosting.endpoints, host.type.name, receive)
    lapse()
    node.envelopes("p-client", [envelope(host, 1)])
    node.envelopes("p-other", [envelope(host, 2)])
    held = node.hosting.waiting_bytes("p-other")
    node.hosting.resume()
    assert handled == []
    lapse(valid=True)
    node.hosting.resume()
    assert handled == [("p-client", 1)]
    assert node.hosting.waiting_bytes("p-other") == held > 0
    lapse(valid=True)
    node.envelopes("p-client", [envelope(host, 3)])
    assert handled == [("p-client", 1)]
    node.hosting.resume()
    assert handled == [("p-client", 1), ("p-other", 2)]


async def test_early_envelopes_that_wait_for_their_entity_are_counted_once(cluster: MemoryCluster) -> None:
    node = cluster.nodes["node1"]
    host = node.hosts["protocol.Counter"]
    row = Row(host)
    host.receive("p-client", [envelope(host, 1), envelope(host, 2)])
    wanted: list[Resident] = []
    host.loader.want = wanted.append  # type: ignore[method-assign,assignment] # it is not loaded yet
    row.told.set_result(ShardRow(host.type.name, 7, EPOCH, node.incarnation, "home"))
    await until(lambda: not host.early.waiting)
    assert len(wanted) == 1
    assert node.hosting.waiting_bytes("p-client") == 2 * (1000 + OVERHEAD_BYTES)


async def test_a_command_behind_a_slow_handler_of_its_batch_is_dropped_when_its_caller_has_given_up(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.client.region_client.ask(Call("protocol.Counter", "a", START, b""))
    host = next(
        node.hosts["protocol.Counter"]
        for node in cluster.nodes.values()
        if node.hosts["protocol.Counter"].shards
    )
    (number, shard), execution = next(iter(host.shards.items())), host.execution
    run, moment = execution.run, execution.owner.now()
    monkeypatch.setattr(execution.owner, "now", lambda: moment)

    def slow(slot: Resident, source: str, message: Deliver) -> bool:
        nonlocal moment
        goes_on = run(slot, source, message)
        moment += 5.0
        return goes_on

    monkeypatch.setattr(execution, "run", slow)
    batch = [Deliver(host.type.name, number, shard.epoch, "a", request, START, b"") for request in (1, 2, 3)]
    batch[1].deadline_ms = int((moment + 20.0) * 1000)
    batch[2].deadline_ms = int((moment + 8.0) * 1000)
    host.receive("p-client", batch)
    assert execution.counters["expired"] == 1


class Finishes:
    """As much of a host as is needed to go on."""

    def __init__(self) -> None:
        self.gone_on: list[Resident] = []

    def finished(self, slot: Resident) -> None:
        self.gone_on.append(slot)


@pytest.mark.parametrize("loaded", [True, False])
async def test_an_entity_that_was_rebuilt_while_it_waited_for_the_lease_goes_on_once(*, loaded: bool) -> None:
    host = Finishes()
    suspended = Suspended(host.finished)
    shard = Shard("protocol.Counter", 1, 1, Resident)
    slot = shard.start("a", 0.0)
    assert slot is not None
    shard.loaded(slot)
    suspended.park(slot)
    shard.reload(slot)
    if loaded:
        shard.loaded(slot)
        suspended.park(slot)
    suspended.resume()
    assert host.gone_on == [slot] * loaded, "one that is being loaded goes on when it is there"
