"""Which shards a node reads pages of."""

from collections.abc import Callable, Collection, Coroutine, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sharding_app.ports.deliveries import MessageChanges, MessageRow, Page, Pending, ShardKey
from sharding_app.protocol.call import Call
from sharding_app.protocol.pending_call import Reply
from sharding_app.runtime.base.config import DeliverySettings
from sharding_app.runtime.delivery import deliverer
from sharding_app.runtime.delivery.deliverer import Deliverer
from tests.unit.runtime.delivery.shop import Owner

pytestmark = pytest.mark.asyncio

NOW = datetime(2026, 1, 1, tzinfo=UTC)
QUIET, FULL = (1, 0), (1, 1)


class Pages:
    """A journal that tells where there is more, and when; `rows` are those of the first pages."""

    def __init__(
        self,
        later: dict[ShardKey, datetime],
        *more: Collection[ShardKey],
        rows: Sequence[list[Pending]] = (),
    ) -> None:
        self.later = later
        self.more = [*more]
        self.rows = [*rows]
        self.asked: list[list[ShardKey]] = []

    async def due(self, shards: Sequence[ShardKey], *_: object) -> Page:
        self.asked.append(sorted(shards))
        more = frozenset(self.more.pop(0)) if self.more else frozenset()
        later = {key: due for key, due in self.later.items() if key in shards}
        return Page(NOW, self.rows.pop(0) if self.rows else [], more, later, [])


def deliverer_of(
    pages: Pages,
    run: Callable[[Coroutine[Any, Any, None]], object],
    ask: Callable[[Call, Reply], None] = lambda *_: None,
) -> Deliverer:
    return Deliverer(
        "n", DeliverySettings(), pages,  # type: ignore[arg-type]
        now=lambda: 0.0, ask=ask, may_handle=lambda: True, run=run,
        host_of=lambda *_: None, fenced=lambda *_: None, place=lambda *_: None,
    )  # fmt: skip


async def read(pages: Pages) -> Deliverer:
    """Let two shards begin, and read all that is wanted at once."""
    jobs: list[Coroutine[Any, Any, None]] = []
    made = deliverer_of(pages, jobs.append)
    entity_type = Owner._sharding_type
    assert entity_type is not None
    for type_id, shard in (QUIET, FULL):
        made.begin(entity_type, type_id, shard, 1)
    for job in jobs:
        await job
    return made


async def test_a_shard_is_not_read_again_because_another_has_more() -> None:
    pages = Pages({}, {FULL}, {FULL})
    await read(pages)
    assert pages.asked == [[QUIET, FULL], [FULL], [FULL]]


async def test_a_shard_does_not_wake_for_the_timer_of_another() -> None:
    made = await read(Pages({FULL: NOW + timedelta(hours=1)}))
    waking = {key: home.deliveries.wake_at for key, home in made._homes.items()}
    assert waking == {QUIET: None, FULL: pytest.approx((NOW + timedelta(hours=1)).timestamp(), abs=2)}
    made.forget(*FULL)


async def test_a_page_after_a_full_one_is_of_few_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each shard the server reads more than a full page takes."""
    row = Pending(
        "m1", 1, 0, "a", 1, 0, "shop.Target", "b", "take", b"", NOW, None, None, None, None, 0, None, False
    )
    pages = Pages({}, {QUIET, FULL}, {QUIET, FULL}, {QUIET, FULL}, rows=[[], [row], []])
    monkeypatch.setattr(deliverer, "FEW_SHARDS", 1)
    monkeypatch.setattr(deliverer, "PAGE_ROWS", 1)
    await read(pages)
    assert pages.asked[:4] == [[QUIET, FULL], [QUIET, FULL], [QUIET], [QUIET, FULL]]


async def test_a_row_that_is_there_again_goes_before_those_that_are_sent_later() -> None:
    """After a failover that lost a commit, an in-memory entity keeps its home."""
    row = Pending(
        "m1", 1, 1, "a", 1, 0, "shop.Target", "b", "take", b"", NOW, None, None, None, None, 0, None, False
    )
    pages = Pages({}, rows=[[], [row]])
    jobs: list[Coroutine[Any, Any, None]] = []
    sent: list[str] = []

    def ask(call: Call, _: Reply) -> None:
        assert call.delivery is not None
        sent.append(call.delivery.id)

    made = deliverer_of(pages, jobs.append, ask)
    entity_type = Owner._sharding_type
    assert entity_type is not None
    made.begin(entity_type, *FULL, 1)
    await jobs.pop()
    made.look_again(FULL[0])
    later = MessageRow("m2", *FULL, "a", 1, 2, 0, "shop.Target", "b", "take", b"")
    made.staged(entity_type, *FULL, 1, "a", MessageChanges(sends=[later]), NOW)
    assert sent == [], "it waits for the page"
    await jobs.pop()
    assert sent == ["m1"]
