"""What the reference's reliable delivery promises: every message of every producer, in order, with
a confirmation, however little a node holds in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime

import pytest
import pytest_asyncio

from sharding_app.ports.deliveries import MessageChanges
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.delivery.shop import Owner, Passing, Target
from tests.unit.runtime.delivery.test_messages import CONFIG, SETTINGS, no_rows

pytestmark = pytest.mark.asyncio

MESSAGES = 42
TARGETS = ("entity-0", "entity-1", "entity-2")
WINDOW = 20
"""A node holds no more messages than these; the others wait in the journal."""
NARROW = replace(CONFIG, deliveries=replace(SETTINGS, max_rows=WINDOW, net_seconds=1000.0))


@pytest_asyncio.fixture
async def cluster(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MemoryCluster]:
    monkeypatch.setattr(Target, "failing", 0)
    monkeypatch.setattr(Target, "attempts", [])
    monkeypatch.setattr(Passing, "taken", [])
    async with MemoryCluster([Owner, Target, Passing], nodes=2, config=NARROW) as made:
        with made.in_use():
            yield made


async def test_a_fast_producer_reaches_every_entity_with_every_message(cluster: MemoryCluster) -> None:
    texts = [str(number) for number in range(MESSAGES)]
    held: list[int] = []

    def note(*_: object) -> None:
        held.extend(node.hosting.parts[0].deliverer.pending for node in cluster.nodes.values())

    cluster.server.messages.on_changes = note
    await asyncio.gather(*(Owner.ref("p").send_to(each, texts) for each in TARGETS))
    await no_rows(cluster)
    for each in TARGETS:
        assert await Target.ref(each).seen() == [f"{text} from p" for text in texts]
    assert 0 < max(held) <= WINDOW < len(TARGETS) * MESSAGES


async def test_each_entity_hears_of_each_producer_in_its_order(cluster: MemoryCluster) -> None:
    texts = [str(number) for number in range(MESSAGES)]
    await asyncio.gather(
        *(Owner.ref(producer).send_to(each, texts) for producer in ("p", "q") for each in TARGETS)
    )
    await no_rows(cluster)
    for each in TARGETS:
        found = await Target.ref(each).seen()
        assert len(found) == 2 * MESSAGES
        for producer in ("p", "q"):
            assert [one for one in found if one.endswith(producer)] == [
                f"{text} from {producer}" for text in texts
            ]


async def test_a_confirmation_comes_after_the_effect_is_stored(cluster: MemoryCluster) -> None:
    """Six messages over two entities. The confirmation is a row of the append that takes the
    message, and has the number of the target's events with this one.
    """
    commands: dict[str, str] = {}
    together: list[tuple[int, int]] = []

    def note(changes: MessageChanges, _: datetime) -> None:
        taken = [commands[each.id] for each in changes.takes]
        commands.update((each.id, each.command) for each in changes.sends)
        confirmed = [each.command for each in changes.sends if each.command == "replied"]
        together.append((taken.count("take"), len(confirmed)))

    cluster.server.messages.on_changes = note
    for number in range(6):
        await Owner.ref("p").ask(TARGETS[number % 2], str(number))
    await no_rows(cluster)
    assert sorted(await Owner.ref("p").seen()) == sorted(
        6 * ["asked"] + 2 * ["reply 1", "reply 2", "reply 3"]
    )
    assert all(taken == confirmed for taken, confirmed in together)
    assert sum(confirmed for _, confirmed in together) == 6
    for index, each in enumerate(TARGETS[:2]):
        assert await Target.ref(each).seen() == [
            f"{number} from p" for number in (index, index + 2, index + 4)
        ]
