"""A server of the cluster's database that is frozen: its connections stay open, and no answer
comes. The checks of the site say so, and hold up no thread.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from django.db import OperationalError, connection, connections
from django.test import Client
from django.urls import include, path

from sharding_app.adapters.django import database
from sharding_app.adapters.django.database import steady_reads
from sharding_app.http import metrics
from sharding_app.operations.cache import Collector, Unreachable
from tests.support.slack import SLACK

urlpatterns = [path("sharding/", include("sharding_app.http.urls"))]
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def site(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.ROOT_URLCONF = __name__
    settings.SHARDING = {"METRICS_TOKEN": "a-long-secret"}
    monkeypatch.setattr(metrics, "_of_calls", lambda: metrics.own_families(None))
    monkeypatch.setattr(database, "READ_SECONDS", 0.3)
    monkeypatch.setattr(database, "CONNECT_SECONDS", 2)


@contextmanager
def frozen(*, is_connected: bool) -> Iterator[None]:
    """Freeze the server: it takes connections, and says nothing on those that there are."""
    connection.close()
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        if is_connected:
            connection.ensure_connection()
            pid = connection.connection.info.backend_pid
            os.kill(pid, signal.SIGSTOP)
            stack.callback(os.kill, pid, signal.SIGCONT)
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        kind: Any = type(connections["default"])
        params, port = kind.get_connection_params, server.getsockname()[1]
        patch.setattr(kind, "get_connection_params", lambda self: {**params(self), "port": port})
        yield
    connection.close()


@pytest.mark.parametrize("is_connected", [True, False])
def test_metrics_tell_that_the_database_does_not_answer(is_connected: bool) -> None:
    with frozen(is_connected=is_connected):
        begun = time.monotonic()
        page = Client().get("/sharding/metrics", headers={"authorization": "Bearer a-long-secret"})
        assert time.monotonic() - begun < 10 * SLACK
    assert "sharding_database_up 0" in page.content.decode()
    kept = vars(connections["default"])
    assert "get_connection_params" not in kept, "the project's own connections are as they were"


def test_a_look_fails_and_the_next_one_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Collector()
    with frozen(is_connected=True), pytest.raises(Unreachable):
        looks.look()
    monkeypatch.setattr(database, "READ_SECONDS", 5.0)
    assert looks.look().cluster.members == []


def test_the_doctor_does_not_wait_for_it() -> None:
    with frozen(is_connected=False):
        begun = time.monotonic()
        with pytest.raises(OperationalError), steady_reads("default"):
            pass
        assert time.monotonic() - begun < 10 * SLACK
