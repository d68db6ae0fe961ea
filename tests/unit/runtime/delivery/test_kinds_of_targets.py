"""A durable message takes effect once whatever kind its target is: its state is stored as a whole,
its commands overlap, or a row of a user's own is written with it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar

import pytest
import pytest_asyncio

from sharding_app import DurableState, EventSourced, ShardingSettings, applies, command, query
from sharding_app.protocol.messages import Deliver
from sharding_app.testing.cluster import MemoryCluster
from sharding_app.testing.together import MemoryTogether
from tests.unit.runtime.delivery.shop import Took
from tests.unit.runtime.delivery.test_messages import CONFIG, no_rows

pytestmark = pytest.mark.asyncio

TEXTS = ["one", "two", "three"]


class Kept(DurableState, name="kinds.Kept"):
    """Stored as a whole."""

    noted: list[str]

    def __init__(self) -> None:
        self.noted = []

    @command
    def take(self, text: str) -> None:
        self.noted.append(text)

    @query
    def seen(self) -> list[str]:
        return self.noted


class Piped(EventSourced, name="kinds.Piped"):
    """Handles the next command while the last one is stored."""

    settings = ShardingSettings(pipelined=True)
    noted: list[str]

    def __init__(self) -> None:
        self.noted = []

    @applies(Took)
    def _took(self, found: Took) -> None:
        self.noted.append(found.text)

    @command
    def take(self, text: str) -> None:
        self.persist(Took(text))

    @query
    def seen(self) -> list[str]:
        return self.noted


class Booked(Piped, name="kinds.Booked"):
    """Writes a row of a user's own with each event."""

    settings = ShardingSettings()
    book: ClassVar[list[str]] = []

    @command
    def take(self, text: str) -> None:
        self.persist(Took(text), in_transaction=lambda: self.book.append(text))


class Sender(EventSourced, name="kinds.Sender"):
    @command
    def send_to(self, kind: str) -> None:
        for text in TEXTS:
            self.send(KINDS[kind].ref("b").take, text)


KINDS: dict[str, type[Kept] | type[Piped]] = {"Kept": Kept, "Piped": Piped, "Booked": Booked}


@contextmanager
def undone_on_error(begin_hooks: Callable[[], None]) -> Iterator[None]:
    """Take back what functions have written, if the transaction fails."""
    before = len(Booked.book)
    try:
        yield
    except BaseException:
        del Booked.book[before:]
        raise
    begin_hooks()


@pytest_asyncio.fixture
async def cluster(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MemoryCluster]:
    monkeypatch.setattr(Booked, "book", [])
    made = MemoryCluster(
        [Sender, *KINDS.values()],
        nodes=2,
        config=CONFIG,
        make_together=lambda journal: MemoryTogether(journal, undone_on_error),
    )
    async with made:
        with made.in_use():
            yield made


async def all_are_there_once(cluster: MemoryCluster, kind: str) -> None:
    await no_rows(cluster)
    assert await KINDS[kind].ref("b").seen() == TEXTS
    assert Booked.book == (TEXTS if kind == "Booked" else [])


@pytest.mark.parametrize("kind", KINDS)
async def test_each_takes_effect_once_though_its_answer_is_lost(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    await KINDS[kind].ref("b").seen()
    home = cluster.nodes[cluster.home_of(KINDS[kind], "b")]
    replies = home.hosts[f"kinds.{kind}"].execution.replies
    answer = replies.answer
    lost: dict[str, None] = {}

    def lose_the_first(source: str, message: Deliver, value: bytes) -> None:
        if message.delivery is None or message.delivery.id in lost:
            answer(source, message, value)
        else:
            lost[message.delivery.id] = None

    monkeypatch.setattr(replies, "answer", lose_the_first)
    await Sender.ref("a").send_to(kind)
    await all_are_there_once(cluster, kind)
    assert len(lost) == len(TEXTS)


@pytest.mark.parametrize("kind", KINDS)
async def test_each_takes_effect_once_though_its_home_dies_before_it_answers(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    await KINDS[kind].ref("b").seen()
    name = cluster.home_of(KINDS[kind], "b")
    replies = cluster.nodes[name].hosts[f"kinds.{kind}"].execution.replies
    committed = asyncio.Event()
    monkeypatch.setattr(replies, "answer", lambda *_: committed.set())
    asked = asyncio.ensure_future(Sender.ref("a").send_to(kind))
    await committed.wait()
    await cluster.kill_node(name)
    await asked
    await all_are_there_once(cluster, kind)
