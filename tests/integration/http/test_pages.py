"""Live pages over WebSocket and as events: who is let in, what they get, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from asgiref.testing import ApplicationCommunicator
from channels.testing import WebsocketCommunicator
from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.asgi import get_asgi_application
from django.db import OperationalError, connections
from django.test import Client, override_settings

from sharding_app import EventSourced, applies, command, event, view
from sharding_app.http import pages
from sharding_app.http.feed import Feeds
from sharding_app.http.handshake import user_now
from sharding_app.http.pages import live_socket
from sharding_app.live import hub as hubs
from sharding_app.live.topics import key_of, topic_of
from sharding_app.testing import ClusterThread
from tests.support.slack import SLACK

SECONDS = 10.0 * SLACK
PATH = "/sharding/live-pages/"


@event
class Bid:
    price: int


class Auction(EventSourced, name="tests.pages.Auction"):
    price: int = 0

    @command
    def bid(self, price: int) -> None:
        self.persist(Bid(price))

    @view(public=True)
    def current(self) -> dict[str, int]:
        return {"price": self.price}

    @view
    def secret(self) -> int:
        return self.price

    @applies(Bid)
    def on_bid(self, happened: Bid) -> None:
        self.price = happened.price

    @classmethod
    def may_watch(cls, user: Any, entity_id: str, view: str) -> bool:
        return bool(user.get_username() == entity_id)


def token(entity: str = "eve", view: str = "current", template: str = "") -> str:
    return topic_of(Auction.ref(entity), view, template=template, language="en").token


def frame(entity: str, shown: Any, view: str = "current") -> dict[str, Any]:
    return {"key": key_of(token(entity, view)), **shown}


def headers(session: str = "", **more: str) -> list[tuple[bytes, bytes]]:
    found = [(b"host", b"testserver")]
    if session:
        found.append((b"cookie", f"other=1; sessionid={session}".encode()))
    return found + [(name.replace("_", "-").encode(), value.encode()) for name, value in more.items()]


@asynccontextmanager
async def browser(
    session: str = "", origin: str = "http://testserver", query: str = ""
) -> AsyncIterator[WebsocketCommunicator]:
    path = f"{PATH}?{query}" if query else PATH
    found = WebsocketCommunicator(live_socket, path, headers(session, origin=origin))
    try:
        yield found
    finally:
        await found.disconnect()


@asynccontextmanager
async def watching(*tokens: str, session: str = "") -> AsyncIterator[WebsocketCommunicator]:
    async with browser(session) as found:
        assert (await found.connect(SECONDS))[0]
        await found.send_to(json.dumps({"watch": list(tokens)}))
        yield found


async def items(socket: WebsocketCommunicator) -> list[Any]:
    found = json.loads(await socket.receive_from(SECONDS))
    return [each for each in found if "ask" not in each]


async def sees(socket: WebsocketCommunicator, wanted: Any) -> None:
    async with asyncio.timeout(SECONDS):
        while wanted not in await items(socket):
            pass


def play(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Act a scene on a loop of its own; nothing may be left of it."""

    async def whole() -> None:
        await scene()
        hub = pages.hub()
        async with asyncio.timeout(SECONDS):
            while hub.seats or hub.watches:  # noqa: ASYNC110 - what is waited for has no event
                await asyncio.sleep(0.01)
        assert hub._tending is None
        await hub.close()
        hub._threads.shutdown(wait=True)

    asyncio.run(whole())


@pytest.fixture
def eve() -> str:
    """The session of a user."""
    client = Client()
    client.force_login(get_user_model().objects.create_user("eve", password="x"))
    return client.cookies["sessionid"].value


# -- WebSocket -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "http://testserver:9999",
        "http://testserver.evil.example",
        "null",
        "",
        "file://",
    ],
)
def test_pages_of_other_sites_open_no_socket(origin: str) -> None:
    async def scene() -> None:
        async with browser(origin=origin) as socket:
            assert not (await socket.connect(SECONDS))[0]

    play(scene)


def test_a_browser_without_a_login_follows_what_is_public(sharding_cluster: ClusterThread) -> None:
    async def scene() -> None:
        async with watching(token(), token("bob"), token("eve", "secret"), "nonsense") as socket:
            await sees(socket, frame("bob", {"value": {"price": 0}}))
            for price in (7, 8):
                await Auction.ref("eve").bid(price)
                await sees(socket, frame("eve", {"value": {"price": price}}))
        async with watching(token("eve", "secret"), "nonsense") as socket:
            found: list[Any] = []
            while len(found) < 2:
                found += await items(socket)
            assert {"key": "nonsense", "refused": "unknown"} in found
            assert frame("eve", {"refused": "denied"}, "secret") in found

    play(scene)


@pytest.mark.django_db(transaction=True)
def test_a_user_follows_what_she_may_until_she_logs_out(
    sharding_cluster: ClusterThread, eve: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hubs, "TEND_SECONDS", 0.02)

    async def scene() -> None:
        async with watching(token("eve", "secret"), token("bob", "secret"), session=eve) as socket:
            await sees(socket, frame("bob", {"refused": "denied"}, "secret"))
            await Auction.ref("eve").bid(7)
            await sees(socket, frame("eve", {"value": 7}, "secret"))
            pages.hub().limits = hubs.Limits(check_seconds=0.02)
            await asyncio.to_thread(log_out, eve)
            await sees(socket, frame("eve", {"refused": "denied"}, "secret"))

    play(scene)


@pytest.mark.django_db
def test_a_look_at_a_session_does_not_end_it(eve: str) -> None:
    """Its hash is of a former SECRET_KEY: a request would give the session another key."""
    scope = {"type": "websocket", "path": PATH, "query_string": b"", "headers": headers(eve)}
    with override_settings(SECRET_KEY="another", SECRET_KEY_FALLBACKS=[settings.SECRET_KEY]):
        for _ in range(2):
            assert user_now(scope).get_username() == "eve"


def log_out(session: str) -> None:
    client = Client()
    client.cookies["sessionid"] = session
    client.logout()
    connections.close_all()


@pytest.mark.parametrize(
    "words",
    [
        "x",
        "[]",
        "null",
        "7",
        '{"watch": 7}',
        '{"watch": [7]}',
        '{"forget": [null]}',
        '{"watch": ["\\ud800"]}',
        '{"forget": ["a", "\\udfff"]}',
        "[" * 9000,
        "x" * 70_000,
    ],
)
def test_words_that_make_no_sense_end_the_connection(words: str) -> None:
    async def scene() -> None:
        async with browser() as socket:
            assert (await socket.connect(SECONDS))[0]
            await socket.send_to(words)
            assert (await socket.receive_output(SECONDS)) == {"type": "websocket.close", "code": pages.POLICY}

    play(scene)


def test_bytes_end_the_connection() -> None:
    async def scene() -> None:
        async with browser() as socket:
            assert (await socket.connect(SECONDS))[0]
            await socket.send_to(bytes_data=b"{}")
            assert (await socket.receive_output(SECONDS))["code"] == pages.POLICY

    play(scene)


def test_a_browser_that_cannot_be_told_has_to_come_again(
    sharding_cluster: ClusterThread, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sent: list[dict[str, Any]] = []
    said = [
        {"type": "websocket.connect"},
        {"type": "websocket.receive", "text": json.dumps({"watch": [token()]})},
    ]

    async def scene() -> None:
        closed = asyncio.Event()

        async def receive() -> dict[str, Any]:
            if said:
                return said.pop(0)
            await closed.wait()
            return {"type": "websocket.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "websocket.send":
                raise UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed")
            sent.append(message)
            if message["type"] == "websocket.close":
                closed.set()

        scope = {"type": "websocket", "path": PATH, "headers": headers(origin="http://testserver")}
        async with asyncio.timeout(SECONDS):
            await live_socket(scope, receive, send)
        assert sent == [{"type": "websocket.accept"}, {"type": "websocket.close", "code": pages.AGAIN}]
        assert "a browser cannot be told" in caplog.text

    play(scene)


@override_settings(SHARDING={"LIVE_BROWSERS": 1})
def test_a_browser_beyond_the_limit_is_told(sharding_cluster: ClusterThread) -> None:
    async def scene() -> None:
        async with watching(token()) as first:
            await items(first)
            async with browser() as second:
                assert (await second.connect(SECONDS))[0]
                assert await items(second) == [{"refused": "full"}]
                assert (await second.receive_output(SECONDS))["code"] == pages.POLICY

    play(scene)


@pytest.mark.django_db(transaction=True)
def test_while_the_sessions_cannot_be_read_a_browser_has_to_come_again(
    sharding_cluster: ClusterThread, eve: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(scope: Any) -> Any:
        raise OperationalError("away")

    async def scene() -> None:
        monkeypatch.setattr(pages.hub(), "_find_user", broken)
        async with watching(token("eve", "secret"), session=eve) as socket:
            assert (await socket.receive_output(SECONDS)) == {"type": "websocket.close", "code": pages.AGAIN}

    play(scene)


def test_a_connection_that_is_cut_leaves_nothing(sharding_cluster: ClusterThread) -> None:
    """A server may cancel the application without a word."""

    async def scene() -> None:
        socket = WebsocketCommunicator(live_socket, PATH, headers(origin="http://testserver"))
        assert (await socket.connect(SECONDS))[0]
        await socket.send_to(json.dumps({"watch": [token()]}))
        await items(socket)
        socket.future.cancel()
        await asyncio.wait([socket.future])
        assert not pages.hub().seats

    play(scene)


# -- Server-sent events ----------------------------------------------------------------------------


class Stream:
    """One request to the site."""

    def __init__(self, query: str, session: str = "", **more: str) -> None:
        scope = {
            "type": "http", "http_version": "1.1", "method": "GET", "path": "/sharding/live-pages", "scheme": "http",
            "query_string": query.encode(), "headers": headers(session, **more), "server": ("testserver", 80),
        }  # fmt: skip
        self.request: Any = ApplicationCommunicator(get_asgi_application(), scope)  # type: ignore[no-untyped-call]
        self.status = 0
        self.headers: dict[str, str] = {}
        self._buffer = ""

    async def __aenter__(self) -> Stream:
        await self.request.send_input({"type": "http.request"})
        start = await self.request.receive_output(SECONDS)
        self.status = start["status"]
        self.headers = {name.decode(): value.decode() for name, value in start["headers"]}
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.request.send_input({"type": "http.disconnect"})
        await self.request.wait(SECONDS)

    async def event(self) -> str:
        """Return the data of the next event."""
        while True:
            event, found, rest = self._buffer.partition("\n\n")
            if not found:
                self._buffer += (await self.request.receive_output(SECONDS))["body"].decode()
                continue
            self._buffer = rest
            lines = [line.removeprefix("data: ") for line in event.split("\n") if line.startswith("data: ")]
            if lines:
                return "\n".join(lines)

    async def sees(self, wanted: str) -> None:
        async with asyncio.timeout(SECONDS):
            while await self.event() != wanted:
                pass


def test_events_carry_the_value(sharding_cluster: ClusterThread) -> None:
    async def scene() -> None:
        async with Stream(f"watch={token()}") as stream:
            assert stream.status == 200
            assert stream.headers["Content-Type"] == "text/event-stream"
            assert stream.headers["Cache-Control"] == "no-store"
            assert await stream.event() == '{"price":0}'
            await Auction.ref("eve").bid(7)
            await stream.sees('{"price":7}')

    play(scene)


TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "OPTIONS": {
            "loaders": [
                (
                    "django.template.loaders.locmem.Loader",
                    {"bid.html": '<div id="auction">\n  <b>{{ value.price }}</b>\r\n</div>'},
                )
            ]
        },
    }
]


@override_settings(TEMPLATES=TEMPLATES)
def test_events_and_messages_carry_html_as_htmx_takes_it(sharding_cluster: ClusterThread) -> None:
    """`sse-swap="message"` takes the data of an event, the extension ws the text of a message."""

    async def scene() -> None:
        await Auction.ref("eve").bid(7)
        async with Stream(f"watch={token(template='bid.html')}") as stream:
            assert await stream.event() == '<div id="auction">\n  <b>7</b>\n</div>'
        async with browser(query=f"watch={token(template='bid.html')}") as socket:
            assert (await socket.connect(SECONDS))[0]
            assert "<b>7</b>" in await socket.receive_from(SECONDS)
            await Auction.ref("eve").bid(8)
            assert "<b>8</b>" in await socket.receive_from(SECONDS)

    play(scene)


@pytest.mark.django_db(transaction=True)
def test_a_refused_stream_has_a_status_at_which_browsers_stop(sharding_cluster: ClusterThread) -> None:
    public = f"watch={token()}"

    async def scene() -> None:
        for query, status in (
            ("", 404),
            ("watch=nonsense", 404),
            ("watch=" + "x" * 5000, 404),
            ("&".join(["watch=a"] * 51), 503),
            (f"watch={token('eve', 'secret')}", 403),
        ):
            async with Stream(query) as stream:
                assert stream.status == status
        for more in (
            {"origin": "http://evil.example"}, {"sec_fetch_site": "cross-site"}, {"sec_fetch_site": "same-site"}
        ):  # fmt: skip
            async with Stream(public, **more) as stream:
                assert stream.status == 403

    play(scene)


@pytest.mark.django_db(transaction=True)
def test_a_stream_ends_with_the_right_to_watch_it(
    sharding_cluster: ClusterThread, eve: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hubs, "TEND_SECONDS", 0.02)
    query = f"watch={token('eve', 'secret')}"

    async def scene() -> None:
        async with Stream(query, eve, sec_fetch_site="same-origin") as stream:
            assert await stream.event() == "0"
            pages.hub().limits = hubs.Limits(check_seconds=0.02)
            await asyncio.to_thread(log_out, eve)
            while (await stream.request.receive_output(SECONDS)).get("more_body"):
                pass
        async with Stream(query, eve) as stream:
            assert stream.status == 403

    play(scene)


def test_a_stream_for_our_script_tells_what_is_refused(sharding_cluster: ClusterThread) -> None:
    async def scene() -> None:
        async with Stream(f"frames=1&watch={token()}&watch=nonsense") as stream:
            found = json.loads(await stream.event())
            found += [] if len(found) > 1 else json.loads(await stream.event())
            assert {"key": "nonsense", "refused": "unknown"} in found
            assert frame("eve", {"value": {"price": 0}}) in found

    play(scene)


def test_a_stream_for_our_script_has_the_views_that_fit(sharding_cluster: ClusterThread) -> None:
    async def scene() -> None:
        asked = "&".join(f"watch={token(f'e{number}')}" for number in range(53))
        async with Stream(f"frames=1&{asked}") as stream:
            found: list[Any] = []
            async with asyncio.timeout(SECONDS):
                while len(found) < 53:
                    found += json.loads(await stream.event())
        assert sum("value" in each for each in found) == 50
        assert sum(each.get("refused") == "full" for each in found) == 3

    play(scene)


def test_under_wsgi_it_is_said_that_it_needs_asgi() -> None:
    answer = Client().get("/sharding/live-pages?watch=x")
    assert answer.status_code == 501


def test_the_hub_of_a_loop_that_has_ended_is_let_go() -> None:
    """Each async test, and each call of `asyncio.run`, has a loop of its own."""
    before = threading.active_count()

    async def use() -> None:
        found = pages.hub()
        await found._in_thread(found._threads, lambda: None)
        await found._in_thread(found._painters, lambda: None)

    for _ in range(5):
        asyncio.run(use())
    assert len(pages.hubs()) == 1
    deadline = time.monotonic() + SECONDS
    while threading.active_count() > before + 2:
        assert time.monotonic() < deadline, "its threads stay"
        time.sleep(0.01)


def test_the_feed_of_a_loop_that_has_ended_is_let_go() -> None:
    feeds = Feeds()

    async def use() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.001):
                await feeds.here._wake.wait()

    for _ in range(5):
        asyncio.run(use())
    assert len(feeds._feeds) == 1
