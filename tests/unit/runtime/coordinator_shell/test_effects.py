"""The shell carries out every effect of its machine, and raises for one that it does not know."""

import asyncio
from typing import Any, cast

import msgspec
import pytest

from sharding_app.protocol.coordinator.effects import CoordinatorEffect
from sharding_app.protocol.coordinator.settings import CoordinatorSettings
from sharding_app.runtime.base.clock import BootClock
from sharding_app.runtime.coordinator_shell import CoordinatorShell


class Unknown(msgspec.Struct, frozen=True):
    """An effect that a later machine may have."""


def test_an_unknown_effect_raises() -> None:
    shell = CoordinatorShell(
        "a", 1, cast("Any", None), BootClock(), lambda to, message: True, lambda to, message: None,
        CoordinatorSettings(), cast("Any", None), 3.0, lambda decision: None, 0.5,
    )  # fmt: skip
    shell.machine.outbox.effects.append(cast("CoordinatorEffect", Unknown()))
    with pytest.raises(AssertionError, match="Unknown"):
        asyncio.run(shell._carry_out())
