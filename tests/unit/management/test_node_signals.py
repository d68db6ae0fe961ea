"""Signals in both senses around a node's end: receivers of Django's hear of it."""

import asyncio
import socket
import threading
import time
import types
from typing import Any

import pytest
from django.core.management.base import CommandError

from sharding_app import wiring
from sharding_app.management.commands.sharding_node import Command
from sharding_app.signals import SignalThread

OPTIONS: dict[str, Any] = {
    "name": "ends", "roles": None, "app_version": "", "leave_timeout": 1.0, "health_port": 0, "end_with_stdin": False,
}  # fmt: skip


def test_receivers_hear_of_the_nodes_end_before_its_process_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []
    signals = SignalThread()

    def receive() -> None:
        time.sleep(0.2)  # it opens a connection
        heard.append("node_down")

    class Runner:
        patience_seconds = 0.0
        up = asyncio.Event()

        async def run(self) -> None:
            signals(receive)

    monkeypatch.setattr(wiring, "make_runner", lambda *_: Runner())
    monkeypatch.setattr(wiring, "signal_thread", signals)
    monkeypatch.setattr("sharding_app.management.commands.sharding_node.RECEIVERS_SECONDS", 60.0)
    asyncio.run(Command()._one(OPTIONS))
    assert heard == ["node_down"]


def test_a_receiver_that_hangs_is_not_waited_for_without_end() -> None:
    release = threading.Event()

    def hang() -> None:
        release.wait(60)

    signals = SignalThread()
    signals.finish(60.0)  # none was called
    signals(hang)
    signals.finish(0.05)
    assert not release.is_set()
    release.set()
    signals.finish(60.0)


def test_a_node_whose_health_port_is_taken_leaves_no_watchdog_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would end the process of a `call_command` later: the loop that it watches is gone."""
    monkeypatch.setattr(wiring, "make_runner", lambda *_: types.SimpleNamespace())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        options = {**OPTIONS, "health_port": taken.getsockname()[1]}
        with pytest.raises(CommandError, match="Cannot listen"):
            asyncio.run(Command()._one(options))
    assert "sharding-watchdog" not in [each.name for each in threading.enumerate()]
