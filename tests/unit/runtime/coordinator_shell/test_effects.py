"""The shell carries out every effect of its machine, and raises for one that it does not know."""

import asyncio
import logging
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from sharding_app.protocol.coordinator.effects import CoordinatorEffect
from sharding_app.protocol.coordinator.settings import CoordinatorSettings
from sharding_app.protocol.messages import ShardStopped
from sharding_app.protocol.records import Server
from sharding_app.runtime import coordinator_shell
from sharding_app.runtime.base.clock import BootClock
from sharding_app.runtime.coordinator_shell import CoordinatorShell


class Unknown(msgspec.Struct, frozen=True):
    """An effect that a later machine may have."""


def test_an_unknown_effect_raises() -> None:
    shell = _shell()
    shell.machine.outbox.effects.append(cast("CoordinatorEffect", Unknown()))
    with pytest.raises(AssertionError, match="Unknown"):
        asyncio.run(shell._carry_out())


def test_long_decisions_are_cut_in_the_log_and_first_homes_are_details(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A start of twenty types would fill the log with numbers of shards."""
    shell, numbers = _shell(), ",".join(str(each) for each in range(0, 1000, 2))
    shell.machine.outbox.note("shards_placed", "shop.Cart", f"{numbers} at a")
    shell.machine.outbox.note("shards_moved", "shop.Cart", f"{numbers} from a to b")
    shell.machine.outbox.note("node_up", "b", "b, version 8")
    with caplog.at_level(logging.DEBUG, "sharding.coordinator"):
        asyncio.run(shell._carry_out())
    placed, moved, up = caplog.records
    assert (placed.levelno, moved.levelno, up.levelno) == (logging.DEBUG, logging.INFO, logging.INFO)
    assert max(len(each.getMessage()) for each in caplog.records) < 300
    assert up.getMessage() == "node_up: b b, version 8"
    assert [len(each.detail) > 1000 for each in shell.decisions] == [True, True, False]


def test_an_early_message_that_raises_costs_the_others_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes before the rows are read, and its sender says it again to the next coordinator."""
    monkeypatch.setattr(coordinator_shell, "MOST_EARLY", 2)

    def take(*_: object) -> None:
        raise LookupError("not thought of")

    async def case() -> None:
        shell = _shell()
        monkeypatch.setattr(shell, "_take", take)
        for _ in range(3):
            assert shell.receive("n-x", ShardStopped("shop.Cart", [1], [1]))
        assert len(shell._early) == 2
        shell._take_over(Server("s", 1), [], [])
        assert shell._loaded
        assert not shell._early

    asyncio.run(case())


def _shell() -> CoordinatorShell:
    async def record(decisions: object) -> None:
        """Take the decisions."""

    return CoordinatorShell(
        "a", 1, cast("Any", SimpleNamespace(record=record)), BootClock(), lambda to, message: True,
        lambda to, message: None, CoordinatorSettings(), cast("Any", None), 3.0, lambda decision: None, 0.5,
    )  # fmt: skip
