"""A node that cannot go on: its process ends at once, with or without words; one that never was up
fails as usual. One whose loop stands still is ended after a time, except under DEBUG.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from sharding_app import wiring
from sharding_app.management.commands.sharding_node import Command
from sharding_app.management.ending import end_at_once
from sharding_app.ports.clock import Clock
from sharding_app.runtime.liveness.watchdog import Watchdog

OPTIONS: dict[str, Any] = {
    "name": "lost", "roles": None, "app_version": "", "leave_timeout": 1.0, "health_port": 0, "end_with_stdin": False,
}  # fmt: skip


class Ended(BaseException):
    """What stands for the end of the process here."""


class Runner:
    patience_seconds = 0.0

    def __init__(self, *, goes_up: bool) -> None:
        self.up = asyncio.Event()
        self._goes_up = goes_up

    async def run(self) -> None:
        if self._goes_up:
            self.up.set()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        raise MemoryError("no more of it")

    def request_stop(self) -> None:
        """Do nothing: the tests here do not stop it."""


def run(monkeypatch: pytest.MonkeyPatch, *, goes_up: bool) -> None:
    def end(code: int) -> None:
        raise Ended(code)

    monkeypatch.setattr("os._exit", end)
    monkeypatch.setattr(logging, "shutdown", lambda: None)
    monkeypatch.setattr(wiring, "make_runner", lambda *_: Runner(goes_up=goes_up))
    asyncio.run(Command()._one(OPTIONS))


def test_one_that_was_up_ends_its_process_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Ended, match="1"):
        run(monkeypatch, goes_up=True)
    assert "node lost is up" in capsys.readouterr().out
    assert [each.__dict__["action"] for each in caplog.records if "action" in each.__dict__] == ["node_lost"]


def test_it_ends_even_if_nothing_can_be_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("sharding_app.management.commands.sharding_node.logger.exception", no_memory)
    with pytest.raises(Ended, match="1"):
        run(monkeypatch, goes_up=True)


def test_one_that_never_was_up_fails_as_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MemoryError, match="no more of it"):
        run(monkeypatch, goes_up=False)


@pytest.mark.parametrize(("debug", "seconds"), [(False, 77.0), (True, 0.0)])
def test_one_whose_loop_stands_still_is_ended_except_under_debug(
    monkeypatch: pytest.MonkeyPatch, settings: Settings, debug: bool, seconds: float
) -> None:
    given: list[tuple[float, Callable[[], None]]] = []

    class Noted(Watchdog):
        def __init__(
            self, clock: Clock, limit: float, end_seconds: float, end_process: Callable[[], None]
        ) -> None:
            given.append((end_seconds, end_process))
            super().__init__(clock, limit)

    monkeypatch.setattr("sharding_app.runtime.liveness.watchdog.Watchdog", Noted)
    settings.DEBUG = debug
    settings.SHARDING = {**settings.SHARDING, "LOOP_STALL_END_SECONDS": 77.0}
    with pytest.raises(MemoryError):
        run(monkeypatch, goes_up=False)
    assert given == [(seconds, end_at_once)]
