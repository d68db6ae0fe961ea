"""`LiveBrowser`: watches live views as a browser does, through the project's own ASGI application.

So a test sees that the routing has its line, who may watch what, and what a page shows after a
command.
"""

from __future__ import annotations

import asyncio
import json
import re
from html import unescape
from types import TracebackType
from typing import Any, Self

from asgiref.testing import ApplicationCommunicator
from django.conf import settings
from django.http import HttpResponse
from django.test import AsyncClient, Client
from django.utils.module_loading import import_string

from sharding_app.errors import InvalidCall
from sharding_app.live import routes
from sharding_app.live.topics import key_of, topic_of

HOST = "testserver"
SECONDS = 10.0
_TOKEN = re.compile(r'data-live="([^"]+)"')


class LiveBrowser:
    """A browser that has the cookies of a test client: ``async with LiveBrowser(client) as
    browser``.
    """

    def __init__(
        self, client: Client | AsyncClient | None = None, *, application: Any = None, timeout: float = SECONDS
    ) -> None:
        """`application`: by default the one that ``ASGI_APPLICATION`` names."""
        self.shown: dict[str, Any] = {}
        "The latest value, or HTML, of each view, by its token."
        self.refused: dict[str, str] = {}
        "Why others are not shown: denied, unknown or full."
        self._client = client
        self._application = application
        self._timeout = timeout
        self._tokens: dict[str, str] = {}

    async def __aenter__(self) -> Self:
        application = self._application or import_string(str(settings.ASGI_APPLICATION))
        path = _path(application)
        scope = {
            "type": "websocket", "path": path, "raw_path": path.encode(), "query_string": b"", "scheme": "ws",
            "root_path": "", "subprotocols": [], "client": ("127.0.0.1", 1), "headers": self._headers(),
        }  # fmt: skip
        self._socket = _communicator(application, scope)
        await self._socket.send_input({"type": "websocket.connect"})
        answer = await self._socket.receive_output(self._timeout)
        if answer["type"] != "websocket.accept":
            raise AssertionError(f"the site refuses the connection: {answer}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._socket.send_input({"type": "websocket.disconnect", "code": 1000})
        await self._socket.wait(self._timeout)

    async def open(self, page: HttpResponse) -> None:
        """Watch all that a page of the site shows."""
        await self._watch([unescape(each) for each in _TOKEN.findall(page.content.decode())])

    async def watch(self, ref: Any, view: str, *args: Any, template: str = "") -> Any:
        """Watch a view; return the first value. Raises AssertionError if it is refused."""
        token = topic_of(ref, view, args, template, settings.LANGUAGE_CODE).token
        await self._watch([token])
        if token in self.refused:
            raise AssertionError(f"{ref!r}.{view} is not shown: {self.refused[token]}")
        return self.shown[token]

    async def sees(self, wanted: Any) -> None:
        """Wait until one of the views has that value, or HTML that contains that text."""
        try:
            async with asyncio.timeout(self._timeout):
                while not any(_is(shown, wanted) for shown in self.shown.values()):
                    await self._take()
        except TimeoutError:
            raise AssertionError(f"not shown: {wanted!r}; shown: {list(self.shown.values())!r}") from None

    async def _watch(self, tokens: list[str]) -> None:
        """Wait until each of them is shown or refused."""
        self._tokens |= {key_of(each): each for each in tokens}
        words = json.dumps({"watch": list(dict.fromkeys(tokens))})
        await self._socket.send_input({"type": "websocket.receive", "text": words})
        async with asyncio.timeout(self._timeout):
            while not all(each in self.shown or each in self.refused for each in tokens):
                await self._take()

    async def _take(self) -> None:
        message = await self._socket.receive_output(self._timeout)
        if message["type"] != "websocket.send":
            raise AssertionError(f"the site has ended the connection: {message}")
        for item in json.loads(message["text"]):
            if "ask" in item:
                words = json.dumps({"got": item["ask"]})
                await self._socket.send_input({"type": "websocket.receive", "text": words})
                continue
            token = self._tokens.get(item.get("key", ""), "")
            if "refused" in item:
                self.refused[token] = item["refused"]
                self.shown.pop(token, None)
            elif "lost" not in item:
                self.shown[token] = item.get("html", item.get("value"))

    def _headers(self) -> list[tuple[bytes, bytes]]:
        found = [(b"host", HOST.encode()), (b"origin", f"http://{HOST}".encode())]
        if self._client is not None:
            cookies = "; ".join(f"{name}={each.value}" for name, each in self._client.cookies.items())
            found.append((b"cookie", cookies.encode()))
        return found


def _communicator(application: Any, scope: dict[str, Any]) -> Any:
    return ApplicationCommunicator(application, scope)  # type: ignore[no-untyped-call] # asgiref's


def _is(shown: Any, wanted: Any) -> bool:
    return bool(shown == wanted or (isinstance(shown, str) and isinstance(wanted, str) and wanted in shown))


def _path(application: Any) -> str:
    found = routes.find_path(application, routes.socket)
    if found is None:
        raise InvalidCall(
            "the ASGI application has no route for live pages: add websocket_urlpatterns of"
            " sharding_app.http.routing to its ProtocolTypeRouter"
        )
    return f"/{found}"
