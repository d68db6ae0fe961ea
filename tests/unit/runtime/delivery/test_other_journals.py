"""What the home of an owner does with messages whose target lies in another journal."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime

import pytest
import pytest_asyncio

from sharding_app.errors import PartiallyApplied
from sharding_app.ports.deliveries import Claim, MessageChanges, MessageRow, Pending, Taking
from sharding_app.ports.journal import JournalUnavailable
from sharding_app.protocol.call import Call
from sharding_app.protocol.delivery import outcome
from sharding_app.protocol.pending_call import Reply
from sharding_app.runtime.base.config import DeliverySettings
from sharding_app.runtime.delivery import deliverer
from sharding_app.runtime.delivery.deliverer import Deliverer
from tests.support.slack import SLACK
from tests.unit.runtime.delivery.shop import Owner
from tests.unit.runtime.delivery.test_pages import NOW, Pages

pytestmark = pytest.mark.asyncio

HERE = "journal_a"
TAKEN = outcome.encode(outcome.TAKEN)


class Rows(Pages):
    """A journal of several, which notes what is asked of it. `errors`: its next answers."""

    def __init__(self, *rows: Pending) -> None:
        super().__init__({}, rows=[list(rows)])
        self.errors: list[Exception] = []
        self.discarded: list[list[Taking]] = []
        self.parked: list[tuple[str, str, Claim]] = []
        self.secured = 0
        self.secures = asyncio.Event()
        self.answers = asyncio.Event()
        self.answers.set()

    async def secure(self) -> None:
        self.secured += 1
        self.secures.set()
        await self.answers.wait()
        if self.errors:
            raise self.errors.pop(0)

    async def discard(self, takes: Sequence[Taking]) -> list[str]:
        await self.answers.wait()
        if self.errors:
            raise self.errors.pop(0)
        self.discarded.append(list(takes))
        return [each.id for each in takes]

    async def park(self, message: str, error: str, claim: Claim) -> bool:
        self.parked.append((message, error, claim))
        return True


class Sender:
    """The deliverer of one shard, and what it asks for."""

    def __init__(self, rows: Rows, *, among_others: bool = True) -> None:
        self.asked: list[tuple[Call, Reply]] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.made = Deliverer(
            "n", DeliverySettings(), rows,  # type: ignore[arg-type]
            now=lambda: 0.0, ask=lambda call, reply: self.asked.append((call, reply)), may_handle=lambda: True,
            run=lambda job: self.tasks.append(asyncio.ensure_future(job)),
            host_of=lambda *_: None, fenced=lambda *_: None, place=lambda *_: None, journal_name=HERE, among_others=among_others,
        )  # fmt: skip

    def stage(self, *names: str, target: str = "b") -> None:
        entity_type = Owner._sharding_type
        assert entity_type is not None
        rows = [
            MessageRow(each, 1, 0, "a", 1, 1, place, "delivery.Target", target, "take", b"")
            for place, each in enumerate(names)
        ]
        self.made.staged(entity_type, 1, 0, 1, "a", MessageChanges(rows), NOW)

    def begin(self) -> None:
        entity_type = Owner._sharding_type
        assert entity_type is not None
        self.made.begin(entity_type, 1, 0, 1)

    @property
    def ids(self) -> list[str]:
        return [call.delivery.id for call, _ in self.asked if call.delivery is not None]

    async def settled(self) -> None:
        """Wait for all jobs that have begun."""
        while self.tasks:
            await self.tasks.pop(0)


@pytest_asyncio.fixture
async def rows(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rows]:
    monkeypatch.setattr(deliverer, "RETRY_SECONDS", 0.0)
    yield Rows()


async def test_a_delivery_names_the_journal_of_its_row(rows: Rows) -> None:
    sender = Sender(rows)
    sender.stage("one")
    (delivery,) = [call.delivery for call, _ in sender.asked]
    assert delivery is not None
    assert delivery.journal == HERE


WAITING = Pending(
    "one", 1, 0, "a", 1, 0, "delivery.Target", "b", "take", b"", datetime(2020, 1, 1, tzinfo=UTC), None, None, None, None, 0,
    None, False,
)  # fmt: skip


async def test_a_row_that_was_read_leaves_when_no_failover_can_lose_it() -> None:
    """Its effect would stay in the other journal."""
    rows = Rows(WAITING)
    rows.answers.clear()
    sender = Sender(rows)
    sender.begin()
    async with asyncio.timeout(10 * SLACK):
        await rows.secures.wait()
    assert sender.ids == []
    rows.answers.set()
    await sender.settled()
    assert sender.ids == ["one"]


async def test_a_page_that_cannot_be_secured_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliverer, "RETRY_SECONDS", 0.0)
    rows = Rows(WAITING)
    rows.rows.append([WAITING])
    rows.errors = [JournalUnavailable("away")]
    sender = Sender(rows)
    sender.begin()
    await sender.settled()
    assert sender.ids == ["one"]
    assert rows.secured == 2


async def test_one_journal_alone_is_not_secured_for_its_messages() -> None:
    rows = Rows(WAITING)
    sender = Sender(rows, among_others=False)
    sender.begin()
    await sender.settled()
    assert (sender.ids, rows.secured) == (["one"], 0)


async def test_the_next_message_leaves_when_the_row_of_the_first_is_deleted(rows: Rows) -> None:
    sender = Sender(rows)
    rows.answers.clear()
    sender.stage("one", "two")
    sender.asked[0][1].set_result(TAKEN)
    await asyncio.sleep(0)
    assert sender.ids == ["one"]
    rows.answers.set()
    await sender.settled()
    assert rows.discarded == [[Taking("one")]]
    assert sender.ids == ["one", "two"]
    assert sender.made.figures.delivered == 1


async def test_a_row_is_deleted_as_soon_as_the_journal_answers(rows: Rows) -> None:
    sender = Sender(rows)
    rows.errors = [JournalUnavailable("away"), JournalUnavailable("away")]
    sender.stage("one", "two")
    sender.asked[0][1].set_result(TAKEN)
    await sender.settled()
    assert rows.discarded == [[Taking("one")]]
    assert sender.ids == ["one", "two"]


async def test_rows_of_several_messages_are_deleted_together(rows: Rows) -> None:
    sender = Sender(rows)
    rows.answers.clear()
    for target in "bcde":
        sender.stage(f"to {target}", target=target)
    for _, reply in sender.asked:
        reply.set_result(TAKEN)
        await asyncio.sleep(0)
    rows.answers.set()
    await sender.settled()
    assert [[each.id for each in takes] for takes in rows.discarded] == [
        ["to b"],
        ["to c", "to d", "to e"],
    ]
    assert sender.made.pending == 0


async def test_the_row_of_a_shard_that_has_left_is_deleted_too(rows: Rows) -> None:
    """Its effect is final. Its next home would deliver it once more."""
    sender = Sender(rows)
    rows.answers.clear()
    sender.stage("one", "two")
    sender.asked[0][1].set_result(TAKEN)
    sender.made.forget(1, 0)
    rows.answers.set()
    await sender.settled()
    assert rows.discarded == [[Taking("one")]]
    assert sender.ids == ["one"]


async def test_a_message_that_took_effect_partly_elsewhere_is_parked(rows: Rows) -> None:
    sender = Sender(rows)
    sender.stage("one", "two")
    error = PartiallyApplied("a part is stored", params={outcome.NOT_PARKED: True})
    sender.made.failed(sender.made._homes[1, 0], sender.made._homes[1, 0].deliveries.messages["one"], error)
    sender.made._touch(sender.made._homes[1, 0])
    await sender.settled()
    assert rows.parked == [("one", "partly_applied: a part is stored", (1, 0, 1))]
    assert sender.ids == ["one", "two"]
    assert (sender.made.figures.parked, sender.made.figures.failures) == (1, 1)


async def test_a_message_that_took_effect_partly_here_is_parked_already(rows: Rows) -> None:
    sender = Sender(rows)
    sender.stage("one", "two")
    sender.made.failed(
        sender.made._homes[1, 0],
        sender.made._homes[1, 0].deliveries.messages["one"],
        PartiallyApplied("a part"),
    )
    await sender.settled()
    assert rows.parked == []
    assert sender.ids == ["one", "two"]
