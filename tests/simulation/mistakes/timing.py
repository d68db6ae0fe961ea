"""Timers of entities: when they ring, and when not."""

from __future__ import annotations

from typing import Any

from sharding_app.runtime.execution.context import HostContext
from tests.simulation.mistakes.mistake import Mistake, nothing


def _cancels_nothing(_: Any) -> Any:
    def cancel(self: HostContext, key: str) -> bool:
        return (self._timers or {}).pop(key, None) is not None

    return cancel


def _too_early(real: Any) -> Any:
    def start(self: HostContext, key: str, seconds: float, name: str, data: bytes) -> None:
        real(self, key, seconds * 0.9, name, data)

    return start


TIMING: dict[str, Mistake] = {
    "timers_outlive_their_object": Mistake((0, 3), HostContext, "close", lambda _: nothing),
    "replaced_timers_ring": Mistake((0,), HostContext, "_cancel", _cancels_nothing),
    "timers_ring_early": Mistake((0,), HostContext, "_start", _too_early),
    "timers_never_ring": Mistake((0,), HostContext, "_fire", lambda _: nothing),
}
