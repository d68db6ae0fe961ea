"""The dashboard's WebSocket: a Channels consumer that admits a browser, hears what it shows, and
passes news on.

The hub (`sharding_app.http.feed`) decides which users and pages are admitted, and what the news
are. A browser sends what it shows in its first message; later messages replace that.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from channels.generic.websocket import AsyncWebsocketConsumer

MAX_WORDS = 4096
"""Longest message of a browser."""

Say = Callable[[str], Awaitable[None]]
End = Callable[[], Awaitable[None]]


class Hub(Protocol):
    """The browsers, and what each of them watches."""

    async def admit(self, scope: Mapping[str, Any], say: Say, end: End) -> Any | None:
        """Let a browser in: a seat, or None."""

    def hear(self, seat: Any, words: str) -> None:
        """Take in a browser's message about what it shows."""

    def leave(self, seat: Any) -> None: ...


class LiveConsumer(AsyncWebsocketConsumer):
    """One browser."""

    hub: Hub
    seat: Any = None
    # Not the site's layer: no message comes that way, and a browser has to be admitted while Redis
    # is down, too.
    channel_layer_alias = ""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve the browser. It leaves its seat however that ends: a server may refuse to send."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            if self.seat is not None:
                self.hub.leave(self.seat)

    async def connect(self) -> None:
        self.seat = await self.hub.admit(self.scope, self._say, self.close)
        if self.seat is None:
            await self.close()
        else:
            await self.accept()

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        if text_data is None or len(text_data) > MAX_WORDS:
            await self.close()
        else:
            self.hub.hear(self.seat, text_data)

    async def _say(self, text: str) -> None:
        await self.send(text_data=text)


def live_application(hub: Hub) -> Any:
    """Return the ASGI application of the dashboard's WebSocket."""
    consumer = type("Live", (LiveConsumer,), {"hub": hub})
    return consumer.as_asgi()  # type: ignore[attr-defined] # made by `type`
