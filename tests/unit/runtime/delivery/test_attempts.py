"""When the outcome of a delivery is taken in."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

import pytest

from sharding_app.errors import InvalidCall, Unavailable
from sharding_app.ports.deliveries import Claim, MessageChanges, MessageRow
from sharding_app.ports.journal import RowRefused
from sharding_app.protocol.call import Call
from sharding_app.protocol.delivery import outcome
from sharding_app.protocol.pending_call import Reply
from sharding_app.runtime.base.config import DeliverySettings
from sharding_app.runtime.delivery.deliverer import Deliverer
from tests.unit.runtime.delivery.shop import Owner
from tests.unit.runtime.delivery.test_pages import Pages

pytestmark = pytest.mark.asyncio

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DONE = outcome.encode(outcome.DONE)


class Asked(list[tuple[str, Reply]]):
    """The deliveries under way: arguments and the taker of the outcome."""

    def ask(self, call: Call, reply: Reply) -> None:
        self.append((call.args.decode(), reply))

    @property
    def args(self) -> list[str]:
        return [each for each, _ in self]


class Texts(Pages):
    """A journal that takes texts as PostgreSQL does."""

    def __init__(self) -> None:
        super().__init__({})
        self.texts: list[str] = []

    async def set_aside(self, message: str, failures: int, pause: float, error: str, claim: Claim) -> bool:
        try:
            error.encode()
        except UnicodeError as refused:
            raise RowRefused(f"text is not Unicode: {refused}") from refused
        self.texts.append(error)
        return True


def stage(
    *args: str,
    pages: Pages | None = None,
    run: Callable[[Coroutine[Any, Any, None]], object] = lambda _: None,
) -> tuple[Deliverer, Asked]:
    """Stage messages of one pair."""
    asked = Asked()
    made = Deliverer(
        "n", DeliverySettings(), pages or Pages({}),  # type: ignore[arg-type]
        now=lambda: 0.0, ask=asked.ask, may_handle=lambda: True, run=run,
        host_of=lambda *_: None, fenced=lambda *_: None, place=lambda *_: None,
    )  # fmt: skip
    entity_type = Owner._sharding_type
    assert entity_type is not None
    rows = [
        MessageRow(f"m{place}", 1, 0, "a", 1, 1, place, "delivery.Target", "b", "take", each.encode())
        for place, each in enumerate(args)
    ]
    made.staged(entity_type, 1, 0, 1, "a", MessageChanges(rows), NOW)
    return made, asked


async def test_the_next_message_leaves_in_the_turn_in_which_the_answer_comes() -> None:
    made, asked = stage("first", "second", "third")
    assert asked.args == ["first"]
    asked[0][1].set_result(DONE)
    assert asked.args == ["first", "second"]
    asked[1][1].set_result(DONE)
    assert asked.args == ["first", "second", "third"]
    assert made.figures.delivered == 2
    assert made.pending == 1


async def test_an_error_is_taken_in_by_a_turn_of_its_own() -> None:
    made, asked = stage("first", "second")
    reply = asked[0][1]
    reply.set_exception(Unavailable("its node is gone", code="fate_unknown"))
    assert reply.done()  # a late answer finds that it is not waited for
    assert made.pending == 2
    assert asked.args == ["first"]
    await asyncio.sleep(0)
    assert made.pending == 2  # both wait for the first one's next attempt
    assert asked.args == ["first"]


async def test_a_message_is_set_aside_whatever_the_text_of_its_error() -> None:
    """An extractor is the user's, and raises on the asking side: no message has encoded that."""
    pages, jobs = Texts(), list[Coroutine[Any, Any, None]]()
    made, asked = stage("first", pages=pages, run=jobs.append)
    asked[0][1].set_exception(InvalidCall("no tenant 'M\udcfcller'\0"))
    await asyncio.sleep(0)
    (change,) = jobs
    await change
    assert pages.texts == ["bad_call: no tenant 'M\\udcfcller' "]
    assert made.pending == 1, "it is tried again"


async def test_a_bug_in_what_follows_an_answer_does_not_reach_the_frame(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made, asked = stage("first")

    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(made, "answered", broken)
    asked[0][1].set_result(DONE)
    assert "what follows a delivery of delivery.Owner failed" in caplog.text
