"""Messages between entities of two databases of a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping

import pytest
import pytest_asyncio

from sharding_app import EventSourced, applies, command, event, query
from sharding_app.embedded import Servers
from sharding_app.errors import ShardingError
from sharding_app.protocol.delivery.deliveries import BackOff
from sharding_app.runtime.base.config import DeliverySettings, NodeConfig
from sharding_app.runtime.hosting import marks
from tests.integration.lives.on_postgres import Params, RealLoop
from tests.integration.runtime.test_two_journals import TwoDatabases, rows
from tests.support.given import until
from tests.support.scratch import make_tables, scratch_database
from tests.unit.runtime.two_journals import SECOND, SHARDS, some

pytestmark = pytest.mark.asyncio

SENDER, BOX = "journals.Sender", "journals.Box"
SENDERS = [*some("", 2, SENDER), *some(SECOND, 2, SENDER)]
BOXES = [*some("", 2, BOX), *some(SECOND, 2, BOX)]
LETTERS = 12
CONFIG = NodeConfig(
    number_of_shards=SHARDS, ask_timeout_seconds=20.0,
    deliveries=DeliverySettings(
        back_off=BackOff(first_seconds=0.1, again_seconds=0.1, again_most_seconds=0.5), answer_seconds=2.0,
        net_seconds=1.0, overdue_seconds=0.5,
    ),
)  # fmt: skip


@event(name="journals.Sent")
class Sent:
    letter: str


class Sender(EventSourced, name=SENDER):
    sent: list[str]
    confirmed: list[int]

    def __init__(self) -> None:
        self.sent = []
        self.confirmed = []

    @command
    def send_all(self, letter: str) -> None:
        if letter in self.sent:
            return  # the caller has tried again
        self.persist(Sent(letter))
        for box in BOXES:
            self.send(Box.ref(box).put, letter).reply_to(self.confirm)

    @command
    def confirm(self, number: int) -> None:
        self.persist(Sent(f"confirmed {number}"))

    @query
    def all(self) -> list[str]:
        return self.sent

    @applies(Sent)
    def on_sent(self, happened: Sent) -> None:
        self.sent.append(happened.letter)


class Box(EventSourced, name=BOX):
    letters: list[str]

    def __init__(self) -> None:
        self.letters = []

    @command
    async def put(self, letter: str) -> int:
        self.persist(Sent(letter))
        return len(self.letters)

    @query
    def all(self) -> list[str]:
        return self.letters

    @applies(Sent)
    def on_sent(self, happened: Sent) -> None:
        self.letters.append(happened.letter)


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"real": RealLoop}


class Offices(TwoDatabases):
    entities = (Sender, Box)


@pytest.fixture
def databases(servers: Servers) -> Iterator[tuple[Params, Params]]:
    with scratch_database(servers.database_url) as first, scratch_database(servers.database_url) as second:
        make_tables(first)
        make_tables(second)
        yield first, second


@pytest_asyncio.fixture
async def cluster(
    databases: tuple[Params, Params], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Offices]:
    monkeypatch.setattr(marks, "LOOK_SECONDS", 0.5)
    async with Offices(*databases, nodes=2, config=CONFIG) as made:
        with made.in_use():
            yield made


def left(cluster: Offices, table: str) -> int:
    return sum(
        rows(params, f"SELECT count(*) FROM {table}")[0][0]  # noqa: S608
        for params in (cluster.params, cluster.second)
    )


async def test_each_letter_arrives_once_and_in_order_while_nodes_come_and_go(cluster: Offices) -> None:
    async def send(sender: str) -> None:
        for number in range(LETTERS):
            while True:
                try:
                    await Sender.ref(sender).send_all(f"{sender} {number:02}")
                except ShardingError:
                    continue
                break

    sending = [asyncio.ensure_future(send(each)) for each in SENDERS]
    await cluster.add_node("third")
    await cluster.kill_node("node1")
    await cluster.add_node("fourth")
    await asyncio.gather(*sending)
    await cluster.stop_node("node2")

    async def all_gone() -> bool:
        return not (left(cluster, "sharding_message") or left(cluster, "sharding_taken"))

    await until(all_gone, 60.0)
    for box in BOXES:
        letters = await Box.ref(box).all()
        for sender in SENDERS:
            ours = [each for each in letters if each.startswith(f"{sender} ")]
            assert ours == [f"{sender} {number:02}" for number in range(LETTERS)]
    for sender in SENDERS:
        confirmed = [each for each in await Sender.ref(sender).all() if each.startswith("confirmed")]
        assert len(confirmed) == LETTERS * len(BOXES)


async def test_marks_lie_with_the_targets_of_other_journals(
    cluster: Offices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marks, "LOOK_SECONDS", 600.0)
    await cluster.stop_node("node1")  # it may look once more
    await cluster.add_node("later")
    await cluster.stop_node("node2")
    for sender in SENDERS:
        await Sender.ref(sender).send_all(f"{sender} x")

    async def delivered() -> bool:
        return not left(cluster, "sharding_message")

    await until(delivered, 60.0)
    wanted = "SELECT journal, partial, count(*) FROM sharding_taken GROUP BY 1, 2"
    # The letters of two senders to two boxes, and as many replies the other way.
    assert rows(cluster.params, wanted) == [(SECOND, False, 8)]
    assert rows(cluster.second, wanted) == [("", False, 8)]
