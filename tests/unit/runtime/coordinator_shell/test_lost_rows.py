"""The coordinator's shell asks the further journals which shards they have, until it knows."""

import asyncio
import logging
from typing import Any, cast

import pytest

from sharding_app.ports.journal import JournalUnavailable
from sharding_app.ports.store import StoreUnavailable
from sharding_app.protocol.coordinator.settings import CoordinatorSettings
from sharding_app.protocol.numbering import Numbering
from sharding_app.protocol.records import ShardRow, StoredShard
from sharding_app.runtime import coordinator_shell
from sharding_app.runtime.base.clock import BootClock
from sharding_app.runtime.coordinator_shell import CoordinatorShell
from tests.unit.runtime.waiting import until

FOUND = StoredShard("t", 3, 5, "b", "home", Numbering(6))
ROW = ShardRow("t", 3, 5, None, "stopped")


class Store:
    """It lacks a row, and knows a journal of which the coordinator has not heard at first."""

    def __init__(self, *names: str) -> None:
        self.to_read = frozenset(names)
        self.read: list[frozenset[str]] = []
        self.refuses = 1

    async def journals_to_read(self) -> frozenset[str] | None:
        if self.refuses:
            self.refuses -= 1
            raise StoreUnavailable("it is away")
        return self.to_read

    async def restore_shards(self, term: int, read: frozenset[str], found: list[StoredShard]) -> bool:
        assert found == [FOUND]
        self.read.append(read)
        return read >= self.to_read

    async def shards(self) -> list[ShardRow]:
        return [ROW]


class Journal:
    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    async def stored_shards(self, name: str) -> list[StoredShard]:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return list(answer)


def shell(store: Store, **journals: Journal) -> CoordinatorShell:
    made = CoordinatorShell(
        "a", 1, cast("Any", store), BootClock(), lambda to, message: True, lambda to, message: None,
        CoordinatorSettings(), cast("Any", None), 3.0, lambda decision: None, journals=cast("Any", journals),
    )  # fmt: skip
    made.machine.placement.unread = frozenset({"b"})
    return made


def test_it_asks_again_after_whatever_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(coordinator_shell, "REREAD_SECONDS", 0.0)
    away = JournalUnavailable("it is down")
    store, journal = Store("b", "c"), Journal(away, away, RuntimeError("a bug"), [FOUND])
    made = shell(store, b=journal, c=Journal([]))
    with caplog.at_level(logging.WARNING, "sharding.coordinator"):
        asyncio.run(made._read_journals())
    assert store.read == [frozenset({"b", "c"})]
    assert made.machine.placement.unread == frozenset()
    assert made.machine.placement.rows == {("t", 3): ROW}
    told = [each.getMessage().rpartition(": ")[2] for each in caplog.records]
    assert told == ["it is away", "it is down", "reading the further journals failed"], "each error once"


@pytest.mark.asyncio
async def test_it_waits_for_a_journal_that_its_node_does_not_know(caplog: pytest.LogCaptureFixture) -> None:
    store = Store("b", "unknown")
    made = shell(store, b=Journal([FOUND]))
    with caplog.at_level(logging.WARNING, "sharding.coordinator"):
        reading = asyncio.create_task(made._read_journals())
        await until(lambda: "does not know the journal 'unknown'" in caplog.text)
        reading.cancel()
    assert store.read == []
    assert made.machine.placement.unread == {"b"}
