"""The site that runcluster serves: which port, which server, which application."""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest
from django.contrib.staticfiles.handlers import ASGIStaticFilesHandler
from django.core.handlers.asgi import ASGIHandler
from django.core.management import call_command
from django.core.management.base import CommandError
from pytest_django.fixtures import Settings

from project.asgi import application
from sharding_app.embedded.ports import free_port
from sharding_app.management import web


@contextmanager
def taken(port: int) -> Iterator[None]:
    with socket.create_server(("127.0.0.1", port)):
        yield


def test_a_free_port_is_taken_as_it_is_and_a_taken_one_skipped() -> None:
    port = free_port()
    assert web.choose_port("127.0.0.1", port) == port
    with taken(port):
        chosen = web.choose_port("127.0.0.1", port)
        assert port < chosen <= port + web.PORTS_TO_TRY
        assert not web.listens("127.0.0.1", chosen)
        assert web.listens("127.0.0.1", port)


def test_where_no_port_is_free_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "PORTS_TO_TRY", 1)
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        with pytest.raises(CommandError, match=f"No port from {port} on is free on 127.0.0.1"):
            web.choose_port("127.0.0.1", port)


def test_an_address_that_is_none_is_said() -> None:
    with pytest.raises(CommandError, match=r"cannot be served on no\.such\.host\.invalid:8000"):
        web.choose_port("no.such.host.invalid", 8000)
    for port in (0, -1, 65536):
        with pytest.raises(CommandError, match=f"--port {port} is none: ports are 1 to 65535"):
            web.choose_port("127.0.0.1", port)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make it look as if only these web servers were installed."""

    def only(*names: str) -> None:
        monkeypatch.setattr(web, "find_spec", lambda name: ModuleSpec(name, None) if name in names else None)

    return only


def test_daphne_goes_first_then_uvicorn_then_hypercorn(installed: Callable[..., None]) -> None:
    installed("hypercorn", "uvicorn", "daphne")
    assert web.server() == "daphne"
    installed("hypercorn", "uvicorn")
    assert web.server() == "uvicorn"
    installed("hypercorn")
    assert web.server() == "hypercorn"


def test_without_any_server_a_sentence_says_what_to_install(installed: Callable[..., None]) -> None:
    installed()
    assert web.server() is None
    with pytest.raises(CommandError, match="Run `pip install daphne`"):
        web.serve("127.0.0.1", 8000)


def test_with_debug_static_files_come_too(settings: Settings) -> None:
    settings.DEBUG = True
    assert isinstance(web.application(), ASGIStaticFilesHandler)
    settings.DEBUG = False
    assert web.application() is application
    del settings.ASGI_APPLICATION
    assert isinstance(web.application(), ASGIHandler)


SERVED = "served = []\n"


@pytest.mark.parametrize(
    ("name", "files", "served"),
    [
        (
            "uvicorn",
            {"uvicorn.py": "def run(app, **options): served.append((app, options))"},
            {"host": "::1", "port": 8123, "lifespan": "off", "log_level": "warning"},
        ),
        (
            "hypercorn",
            {
                "hypercorn/__init__.py": "",
                "hypercorn/config.py": "class Config: pass",
                "hypercorn/asyncio.py": "async def serve(app, config): served.append((app, vars(config)))",
            },
            {"bind": ["[::1]:8123"]},
        ),
    ],
)
def test_other_servers_get_the_application_and_the_address(
    name: str, files: dict[str, str], served: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    settings: Settings,
) -> None:  # fmt: skip
    settings.DEBUG = False
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(SERVED + text)
    monkeypatch.syspath_prepend(tmp_path)
    web.SERVERS[name](web.application(), "::1", 8123)
    modules = [sys.modules.pop(each) for each in list(sys.modules) if each.partition(".")[0] == name]
    calls: list[Any] = [call for module in modules for call in getattr(module, "served", [])]
    assert calls == [(application, served)]


def test_the_site_exits_in_order_where_its_server_ends_by_the_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    """As uvicorn does, behind its own end."""
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(web, "serve", lambda *_: signal.raise_signal(signal.SIGTERM))
    monkeypatch.setattr("sharding_app.management.commands.runcluster.at_end_of_input", lambda *_: None)
    try:
        with pytest.raises(SystemExit) as ended:
            call_command("runcluster", "--serve-site", "--skip-checks")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ended.value.code is None


@pytest.mark.parametrize(
    ("host", "ours"),
    [
        ("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True),
        ("0.0.0.0", False), ("::", False), ("192.0.2.7", False), ("example.org", False), ("", False),  # noqa: S104
    ],
)  # fmt: skip
def test_debug_pages_are_served_on_the_loopback_alone(settings: Settings, host: str, ours: bool) -> None:
    assert web.is_loopback(host) is ours
    settings.DEBUG = True
    if not ours:
        for more in ([], ["--serve-site"]):
            with pytest.raises(CommandError, match="debug pages"):
                call_command("runcluster", f"--host={host}", *more)


def test_runcluster_with_embedded_servers_touches_no_other(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(settings.DATABASES["default"], "ENGINE", "django.db.backends.postgresql")
    with pytest.raises(CommandError, match=r"leads to a server of your own.*embedded\.database\(BASE_DIR"):
        call_command("runcluster", "--embedded")
